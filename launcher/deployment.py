"""One running deployment: its supervision with everything that hangs on it."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.discovery import backend
from launcher.findings import Finding
from launcher.frontdoor.door import FrontDoor
from launcher.machine.sockets import listening, reachable
from launcher.observe import listener
from launcher.observe.closing import closing
from launcher.observe.disks import Disks
from launcher.observe.observer import Observer, Source
from launcher.observe.view.live import View
from launcher.plan.model import WORKER_ROLES, Plan, Process, Role
from launcher.prove import report
from launcher.prove.ears import Ears
from launcher.prove.evidence import Evidence
from launcher.supervise import procfs
from launcher.supervise.custody import Custody
from launcher.supervise.events import Event, Kind, ProcessState
from launcher.supervise.hooks import Hooks
from launcher.supervise.logpump import LogPump
from launcher.supervise.policy import RestartPolicy
from launcher.supervise.signals import install_signals
from launcher.supervise.supervisor import Supervisor
from launcher.upkeep import Upkeep

if TYPE_CHECKING:
    from launcher.witness import Witness


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
        head_start_s: float = 0.0,
    ) -> None:
        self.plan = plan
        self.started_at = time.monotonic()
        self._findings = findings
        self._pump = pump
        self._view = view
        self.upkeep = Upkeep(plan, pump.log)
        self._disks = Disks(Path(plan.run_dir), log_dir, pump.log)
        hooks = Hooks(
            respawn=lambda process, incarnation: respawn(self.door.marked(process), incarnation),
            on_event=self._on_event,
            on_death=self._on_death,
            before_restart=self._before_restart,
            is_cold=self.upkeep.is_cold,
            on_stopped=self._on_stopped,
        )
        self.supervisor = Supervisor(
            plan, pump, hooks=hooks, custody=custody, policy=policy, head_start_s=head_start_s
        )
        self.door = FrontDoor(plan, self.supervisor.snapshot, pump.log)
        self.discovery = backend.make(
            plan, self.supervisor.snapshot, self._listeners, pump, self.reasons, os.environ
        )
        self._witness: Witness | None = None
        self.report: dict[str, Any] | None = None
        """Of the first time ready."""
        self.evidence = Evidence(ears, self.discovery)
        self.observer = Observer(
            Source(
                plan=plan,
                pump=pump,
                snapshot=self.supervisor.snapshot,
                reasons=self.reasons,
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
        """Until asked to stop or failed for good; returns the exit code.

        The children start before everything that is not needed to start them.
        """
        listeners = listener.listen(self.plan.admin_host, self.plan.admin_port)
        remove_signals = install_signals(self.supervisor)
        running = asyncio.create_task(self.supervisor.run(), name="supervisor")
        helpers: list[asyncio.Task[Any]] = [
            asyncio.create_task(self.discovery.run(), name="discovery"),
            asyncio.create_task(self._disks.run(), name="disks"),
        ]
        witness: Witness | None = None
        try:
            launched = asyncio.create_task(self.supervisor.launched.wait())
            helpers.append(launched)
            await asyncio.wait((launched, running), return_when=asyncio.FIRST_COMPLETED)
            # In a thread: a death that happens meanwhile is noticed at once.
            module = await asyncio.to_thread(importlib.import_module, "launcher.witness")
            witness = self._witness = module.Witness(self, self._pump)
            assert witness is not None
            await witness.serve(listeners)
            self.door.use(witness.client)
            helpers += [
                asyncio.create_task(witness.readiness.run(), name="readiness"),
                asyncio.create_task(self._start_deadline(witness), name="start-deadline"),
                asyncio.create_task(
                    self.upkeep.run(self.supervisor, witness.frontend, self.discovery), name="upkeep"
                ),
            ]
            if self._view is not None:
                helpers.append(asyncio.create_task(self._view.follow(self.status), name="view"))
            for helper in helpers:
                helper.add_done_callback(self._helper_ended)
            return await running
        finally:
            if not running.done():
                self.supervisor.kill()
                await asyncio.gather(running, return_exceptions=True)
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            remove_signals()
            self.door.close()
            listener.close(listeners)
            if witness is not None:
                await witness.close()
            await self.observer.close()

    # -- what the witness asks

    def snapshot(self) -> Sequence[ProcessState]:
        """Every process of the plan, in its order."""
        return self.supervisor.snapshot()

    def fail(self, reason: str) -> None:
        """The deployment as a whole has failed."""
        self.supervisor.fail(reason)

    def unregistered(self, states: Sequence[ProcessState]) -> list[str]:
        """The workers that no frontend can find."""
        return self.discovery.unregistered(states)

    def active_frontend(self) -> str:
        """The name of the frontend that takes new requests."""
        return self.door.active

    def metrics(self) -> Awaitable[str]:
        """The page `/metrics`."""
        return self.observer.metrics()

    def reasons(self) -> list[str]:
        """Why the deployment is not ready; empty where it is."""
        if self.supervisor.draining:
            return ["draining"]
        return list(self._witness.readiness.reasons) if self._witness is not None else ["starting"]

    def was_ready(self) -> bool:
        """Whether it has been ready once."""
        return self._witness is not None and self._witness.readiness.first.is_set()

    def status(self) -> dict[str, Any]:
        """The page `/status`."""
        plan = self.plan
        page = {
            "ready": not self.reasons(),
            "reasons": self.reasons(),
            "target": plan.target,
            "engine": plan.engine,
            "simulated": plan.simulated,
            "model": plan.model,
            "url": self.url,
            "uptime_s": round(time.monotonic() - self.started_at, 3),
            "ready_s": self._ready_s(),
            "min_ready": dict(plan.min_ready),
            "warnings": [finding.to_json() for finding in (*self._findings, *self._disks.troubles.values())],
            "discovery": self.discovery.page() | {"healed": self.upkeep.healed},
            "pid": os.getpid(),
            "proofs": self._witness.prover.to_json() if self._witness is not None else [],
            "report": self.report,
        }
        return self.observer.status(page)

    def closing(self, code: int) -> tuple[str, str]:
        """After `run`: the last line and its level."""
        observer = self.observer
        return closing(
            code,
            observer.history,
            self.supervisor.failure,
            observer.incidents.ended_by,
            time.monotonic(),
            "; ".join(filter(None, (observer.incidents.first_error, self._disks.told()))),
        )

    def _ready_s(self) -> float | None:
        at = self._witness.readiness.ready_at if self._witness is not None else None
        return round(at - self.started_at, 3) if at is not None else None

    def _failure(self) -> str | None:
        """Why the deployment as a whole failed; None also where one of its processes did."""
        failure = self.supervisor.failure
        return failure.reason if failure is not None and not failure.process else None

    def _on_event(self, event: Event) -> None:
        readiness = self._witness.readiness if self._witness is not None else None
        self.observer.event(event)
        self.upkeep.event(event)
        self.door.event(event)
        if event.kind is Kind.DRAINING and not event.process and readiness is not None:
            readiness.drain()
        if event.kind is Kind.DRAINING and event.process:
            self.discovery.leaving(event.process)
        if event.kind is Kind.RECOVERED:
            self.discovery.stand_back(event.process)
        if event.kind is Kind.STARTED:
            self.evidence.ears.forget(event.process)
            state = next(state for state in self.supervisor.snapshot() if state.name == event.process)
            self.discovery.joined(event.process, [state.ports["rpc"]] if "rpc" in state.ports else [])
        if readiness is not None:
            readiness.look()

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

    async def _start_deadline(self, witness: Witness) -> None:
        """End the run where it does not become ready in time; say so when it does."""
        try:
            async with asyncio.timeout(self.plan.deadlines.start_s):
                await witness.readiness.first.wait()
        except TimeoutError:
            why = "; ".join(witness.readiness.reasons)
            self.supervisor.fail(f"not ready {self.plan.deadlines.start_s:g} s after the start: {why}")
            return
        self.report = report.build(
            self.plan,
            self.url,
            self.supervisor.snapshot(),
            witness.prover.to_json(),
            self.evidence.kv_tokens(),
            self._findings,
            self._ready_s() or 0.0,
        )
        simulated = " (simulated)" if self.plan.simulated else ""
        join = self.plan.join
        what = f"{self.plan.model} at {self.url}" if join.has(Role.FRONTEND) else f"its part, {join.node}"
        self._pump.log(f"ready in {self.report['ready_s']:.1f} s{simulated}: {what}")
        self._pump.page(report.text(self.report, _columns()))

    def _helper_ended(self, helper: asyncio.Task[Any]) -> None:
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
