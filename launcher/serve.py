"""Serving: a plan becomes a running deployment. The one place where planning, supervision and proof meet."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from launcher.discovery import backend
from launcher.findings import Finding, Severity
from launcher.frontdoor.door import FrontDoor
from launcher.machine.sockets import listening
from launcher.observe.admin import Admin, Pages
from launcher.observe.closing import closing
from launcher.observe.observer import Observer, Source
from launcher.observe.view.live import View
from launcher.plan.model import WORKER_ROLES, Plan, Process, Role
from launcher.prove import report
from launcher.prove.claimed import Claimed
from launcher.prove.ears import Ears
from launcher.prove.evidence import Evidence
from launcher.prove.frontend import Frontend
from launcher.prove.prover import Prover
from launcher.prove.readiness import Readiness
from launcher.supervise import procfs
from launcher.supervise.custody import Custody
from launcher.supervise.events import Event, Kind
from launcher.supervise.hooks import Hooks
from launcher.supervise.logpump import LogPump
from launcher.supervise.logs import JsonFormat, TextFormat
from launcher.supervise.logwriter import LogWriter
from launcher.supervise.policy import RestartPolicy
from launcher.supervise.signals import install_signals
from launcher.supervise.supervisor import Supervisor
from launcher.upkeep import Upkeep


class Deployment:
    """One running plan."""

    def __init__(
        self,
        plan: Plan,
        pump: LogPump,
        respawn: Callable[[Process, int], Process],
        custody: Custody,
        findings: tuple[Finding, ...] = (),
        policy: RestartPolicy | None = None,
        log_dir: Path | None = None,
        view: View | None = None,
        ears: Ears | None = None,
    ) -> None:
        self.plan = plan
        self.started_at = time.monotonic()
        self._findings = findings
        self._pump = pump
        self._view = view
        self.upkeep = Upkeep(plan, pump.log)
        hooks = Hooks(
            respawn=lambda process, incarnation: respawn(self.door.marked(process), incarnation),
            on_event=self._on_event,
            on_death=self._on_death,
            before_restart=self._before_restart,
            is_cold=self.upkeep.is_cold,
            on_stopped=self._on_stopped,
        )
        self.supervisor = Supervisor(plan, pump, hooks=hooks, custody=custody, policy=policy)
        self.door = FrontDoor(plan, self.supervisor.snapshot, pump.log)
        self.discovery = backend.make(
            plan, self.supervisor.snapshot, self._listeners, pump, self._reasons, os.environ
        )
        self.readiness: Readiness | None = None
        self.prover: Prover | None = None
        self.report: dict[str, Any] | None = None
        """Of the first time ready."""
        self.evidence = Evidence(ears, self.discovery)
        self.observer = Observer(
            Source(
                plan=plan,
                pump=pump,
                snapshot=self.supervisor.snapshot,
                reasons=self._reasons,
                ready_s=self._ready_s,
                registrations=self.discovery,
                failure=self._failure,
                host=reachable(plan.http_host),
                log_dir=log_dir,
            )
        )

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the API."""
        return f"http://{reachable(self.plan.http_host)}:{self.plan.http_port}"

    async def run(self) -> int:
        """Until asked to stop or failed for good; returns the exit code."""
        admin = Admin(
            Pages(self._reasons, self._was_ready, self.status, self.observer.metrics, self._page_failed)
        )
        await admin.start(self.plan.admin_host, self.plan.admin_port)
        remove_signals = install_signals(self.supervisor)
        connector = aiohttp.TCPConnector(force_close=True)
        try:
            async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
                frontend = Frontend(session, self.url, self.plan.model)
                snapshot = self.supervisor.snapshot
                self.door.use(lambda url: Frontend(session, url, self.plan.model))
                claimed = Claimed(self.plan, frontend, snapshot, self.evidence)
                self.prover = Prover(claimed, snapshot, self._pump.log, fail=self.supervisor.fail)
                self.readiness = Readiness(
                    self.plan,
                    frontend,
                    self.prover,
                    snapshot,
                    self._pump.log,
                    self.discovery.unregistered,
                    lambda: self.door.active,
                )
                helpers = [
                    asyncio.create_task(self.discovery.run(), name="discovery"),
                    asyncio.create_task(self.readiness.run(), name="readiness"),
                    asyncio.create_task(self._start_deadline(self.readiness), name="start-deadline"),
                    asyncio.create_task(
                        self.upkeep.run(self.supervisor, frontend, self.discovery), name="upkeep"
                    ),
                ]
                if self._view is not None:
                    helpers.append(asyncio.create_task(self._view.follow(self.status), name="view"))
                for helper in helpers:
                    helper.add_done_callback(self._helper_ended)
                try:
                    return await self.supervisor.run()
                finally:
                    for helper in helpers:
                        helper.cancel()
                    await asyncio.gather(*helpers, return_exceptions=True)
        finally:
            remove_signals()
            self.door.close()
            await admin.close()
            await self.observer.close()

    def status(self) -> dict[str, Any]:
        """The page `/status`."""
        plan = self.plan
        page = {
            "ready": not self._reasons(),
            "reasons": self._reasons(),
            "target": plan.target,
            "engine": plan.engine,
            "simulated": plan.simulated,
            "model": plan.model,
            "url": self.url,
            "uptime_s": round(time.monotonic() - self.started_at, 3),
            "ready_s": self._ready_s(),
            "min_ready": dict(plan.min_ready),
            "warnings": [finding.to_json() for finding in self._findings],
            "discovery": self.discovery.page() | {"healed": self.upkeep.healed},
            "pid": os.getpid(),
            "proofs": self.prover.to_json() if self.prover is not None else [],
            "report": self.report,
        }
        return self.observer.status(page)

    def closing(self, code: int) -> tuple[str, str]:
        """After `run`: the last line and its level."""
        observer = self.observer
        return closing(
            code, observer.history, self.supervisor.failure, observer.incidents.ended_by, time.monotonic()
        )

    def _ready_s(self) -> float | None:
        at = self.readiness.ready_at if self.readiness is not None else None
        return round(at - self.started_at, 3) if at is not None else None

    def _failure(self) -> str | None:
        """Why the deployment as a whole failed; None also where one of its processes did."""
        failure = self.supervisor.failure
        return failure.reason if failure is not None and not failure.process else None

    def _page_failed(self, text: str) -> None:
        self._pump.log(text, "error")

    def _reasons(self) -> list[str]:
        if self.supervisor.draining:
            return ["draining"]
        return list(self.readiness.reasons) if self.readiness is not None else ["starting"]

    def _was_ready(self) -> bool:
        return self.readiness is not None and self.readiness.first.is_set()

    def _on_event(self, event: Event) -> None:
        self.observer.event(event)
        self.upkeep.event(event)
        self.door.event(event)
        if event.kind is Kind.DRAINING and not event.process and self.readiness is not None:
            self.readiness.drain()
        if event.kind is Kind.DRAINING and event.process:
            self.discovery.leaving(event.process)
        if event.kind is Kind.RECOVERED:
            self.discovery.stand_back(event.process)
        if event.kind is Kind.STARTED:
            self.evidence.ears.forget(event.process)
            state = next(state for state in self.supervisor.snapshot() if state.name == event.process)
            self.discovery.joined(event.process, [state.ports["rpc"]] if "rpc" in state.ports else [])
        if self.readiness is not None:
            self.readiness.look()

    def _on_death(self, process: Process, incarnation: int) -> Awaitable[None] | None:
        self.door.lost(process.name)
        return self.discovery.withdraw(process.name)

    def _on_stopped(self, process: Process) -> bool:
        # Nothing stands in for a frontend or a helper: its end would only cut what waits for it to go on.
        return process.role not in WORKER_ROLES or self.discovery.stand_aside(process.name)

    async def _before_restart(self, process: Process) -> None:
        await self.upkeep.before_restart(process)
        # Past one node a process that starts while discovery is away only dies again, and spends the budget.
        if process.role is not Role.HELPER:
            await self.discovery.reachable()

    def _listeners(self) -> Mapping[int, str]:
        """TCP port to the process of the plan whose tree listens on it."""
        owners: dict[int, str] = {}
        table = procfs.scan()
        for state in self.supervisor.snapshot():
            if state.pid is not None:
                owners[state.pid] = state.name
                owners |= {process.pid: state.name for process in procfs.descendants(table, state.pid)}
        return {port: owners[pid] for pid, _, port in listening(owners)}

    async def _start_deadline(self, readiness: Readiness) -> None:
        """End the run where it does not become ready in time; say so when it does."""
        try:
            async with asyncio.timeout(self.plan.deadlines.start_s):
                await readiness.first.wait()
        except TimeoutError:
            why = "; ".join(readiness.reasons)
            self.supervisor.fail(f"not ready {self.plan.deadlines.start_s:g} s after the start: {why}")
            return
        assert self.prover is not None
        self.report = report.build(
            self.plan,
            self.url,
            self.supervisor.snapshot(),
            self.prover.to_json(),
            self.evidence.kv_tokens(),
            self._findings,
            self._ready_s() or 0.0,
        )
        simulated = " (simulated)" if self.plan.simulated else ""
        join = self.plan.join
        what = f"{self.plan.model} at {self.url}" if join.has(Role.FRONTEND) else f"its part, {join.node}"
        self._pump.log(f"ready in {self.report['ready_s']:.1f} s{simulated}: {what}")
        self._pump.page(report.text(self.report, _columns()))

    def _helper_ended(self, helper: asyncio.Task[None]) -> None:
        if not helper.cancelled() and (error := helper.exception()) is not None:
            # A deployment without its keeper or its proof would rot in silence.
            self._pump.log(f"{helper.get_name()} failed: {type(error).__name__}: {error}", "error")
            self.supervisor.fail(f"the launcher's own {helper.get_name()} failed: {error}")


def _columns() -> int:
    """Of the terminal that standard output is; as many as a report takes where it is none."""
    try:
        return os.get_terminal_size(1).columns or report.WIDTH + 1
    except OSError:
        return report.WIDTH + 1


def reachable(host: str) -> str:
    """An address at which a client here reaches a server that listens on `host`."""
    if host in ("0.0.0.0", ""):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host


def prepare(plan: Plan, custody: Custody) -> None:
    """Make the run's private folder with what must be there before any process starts."""
    run_dir = Path(plan.run_dir)
    run_dir.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    custody.folder(run_dir)
    run_dir.mkdir(mode=0o700)
    Path(plan.discovery_dir).mkdir(mode=0o700)


def serve(
    plan: Plan,
    respawn: Callable[[Process, int], Process],
    custody: Custody,
    *,
    json_logs: bool,
    log_dir: Path | None,
    findings: tuple[Finding, ...],
    policy: RestartPolicy | None = None,
    live: bool = False,
) -> int:
    """Run the plan until it is asked to stop or fails for good; returns the exit code.

    `live`: standard output is a terminal, and the live view stands below the log.
    """
    import uvloop

    prepare(plan, custody)
    names = [process.name for process in plan.processes]
    form = (
        JsonFormat()
        if json_logs
        else TextFormat(names, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    )
    view = View() if live else None
    writer = LogWriter(view.screen.pipe) if view is not None else None
    ears = Ears()
    pump = LogPump(form, writer, log_dir=log_dir, overhear=ears.hear)
    try:
        simulated = ", simulated" if plan.simulated else ""
        pump.log(
            f"{plan.target}: {plan.model} on {plan.engine}{simulated}, {len(names)} processes, "
            f"plan {plan.hash()}, API {plan.http_host}:{plan.http_port}, admin {plan.admin_host}:{plan.admin_port}"
        )
        for note in plan.notes:
            pump.log(note)
        for finding in findings:
            pump.log(finding.line(), "warning" if finding.severity is Severity.WARNING else "info")

        async def main() -> int:
            deployment = Deployment(plan, pump, respawn, custody, findings, policy, log_dir, view, ears)
            code = await deployment.run()
            pump.log(*deployment.closing(code))
            return code

        code: int = uvloop.run(main())
        return code
    finally:
        with contextlib.suppress(OSError):
            pump.close()
        if view is not None:
            view.close()
