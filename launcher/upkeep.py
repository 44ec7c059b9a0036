"""What keeps a running deployment whole beside supervision: restarts on request, healing, GPU memory, warm caches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.control import SOCKET
from launcher.control.server import ControlServer, Gone, Note, Refused, flag_of, names_of, only
from launcher.discovery.backend import Discovery
from launcher.discovery.file import FileDiscovery
from launcher.discovery.heal import Healer
from launcher.discovery.view import unseen
from launcher.engines.warm import Warmth
from launcher.machine.release import released
from launcher.plan.model import WORKER_ROLES, Plan, Process, Role
from launcher.supervise.events import Event, Kind
from launcher.supervise.logs import Log
from launcher.supervise.supervisor import Supervisor

if TYPE_CHECKING:
    # For types alone: it brings aiohttp, and a quarter of a second before the first child.
    from launcher.prove.frontend import Frontend

ROUTED_S = 60.0
"""For a restarted worker to be routed to again after it is healthy."""


class Upkeep:
    """Make it before the supervisor, whose hooks it serves; `run` needs both."""

    def __init__(self, plan: Plan, log: Log) -> None:
        self._plan = plan
        self._log = log
        self._warmth = Warmth(plan)
        self.is_cold = self._warmth.is_cold
        self._healer: Healer | None = None

    @property
    def healed(self) -> int:
        """How often registrations were written anew because the frontend did not see a healthy worker."""
        return self._healer.healed if self._healer is not None else 0

    async def before_restart(self, process: Process) -> None:
        """Hook: the process's GPUs are to be free before it starts again."""
        if process.gpus and not self._plan.simulated:
            await released(process.gpus, process.name, self._log)

    def event(self, event: Event) -> None:
        """Something happened."""
        if event.kind is Kind.HEALTHY and event.role in WORKER_ROLES:
            self._warmth.became_ready(self._plan.process(event.process))

    async def run(self, supervisor: Supervisor, frontend: Frontend, discovery: Discovery) -> None:
        """Serve the control socket and heal until cancelled."""
        restart = Restart(supervisor, frontend, discovery, self._plan)
        control = ControlServer(Path(self._plan.run_dir) / SOCKET, {"restart": restart}, self._log)
        await control.start()
        jobs: list[asyncio.Task[Any]] = [asyncio.create_task(asyncio.Event().wait(), name="until-cancelled")]
        # Other backends renew their own registrations, and know workers of other nodes.
        if isinstance(discovery, FileDiscovery):
            discovery.blinded = partial(_again, supervisor)
            self._healer = Healer(frontend, supervisor.snapshot, discovery, supervisor.condemn, self._log)
            jobs.append(asyncio.create_task(self._healer.run(), name="healer"))
        if self._plan.canary is not None:
            from launcher.prove.canary import Watcher

            watcher = Watcher(
                self._plan, frontend, supervisor.snapshot, supervisor.condemn, supervisor.late_s
            )
            jobs.append(asyncio.create_task(watcher.run(), name="canary"))
        try:
            await asyncio.gather(*jobs)
        finally:
            for job in jobs:
                job.cancel()
            await control.close()


def _again(supervisor: Supervisor, why: str, whole: bool) -> None:
    """Start those again that followed a folder which is gone, or, where all of the run's is, had sockets in it."""
    for state in supervisor.snapshot():
        if state.role is Role.FRONTEND or (whole and state.role is Role.HELPER):
            supervisor.condemn(state.name, why)


class Restart:
    """The order `{"do": "restart", "names": [...], "force": false}`; no names: every worker."""

    def __init__(self, supervisor: Supervisor, frontend: Frontend, discovery: Discovery, plan: Plan) -> None:
        self._supervisor = supervisor
        self._frontend = frontend
        self._discovery = discovery
        self._plan = plan
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, order: Mapping[str, Any], note: Note) -> None:
        only(order, "names", "force")
        force = flag_of(order, "force")
        names = names_of(order, "names") or [process.name for process in self._plan.workers]
        known = [process.name for process in self._plan.processes]
        if wrong := [name for name in names if name not in known]:
            raise Refused(f"there is no {', '.join(map(repr, wrong))}; there are: {', '.join(known)}")
        note.accept()
        if self._one_at_a_time.locked():
            note("waiting for another restart to end")
        async with self._one_at_a_time:
            if note.gone():
                raise Gone
            for name in names:
                if not force:
                    self._spare(name)
                await self._one(name, note)

    def _spare(self, name: str) -> None:
        """Refuse where no other process would do the work meanwhile."""
        process = self._plan.process(name)
        if process.role not in WORKER_ROLES:
            what = (
                "new requests are refused"
                if process.role is Role.FRONTEND
                else "the router learns of no KV events"
            )
            raise Refused(f"{what} while {name} restarts; --force restarts it all the same")
        others = [
            state for state in self._supervisor.snapshot()
            if state.role is process.role and state.name != name and state.healthy
        ]  # fmt: skip
        if not others:
            raise Refused(
                f"no other {process.role.value} worker is healthy: requests would fail while {name} restarts; "
                "--force restarts it all the same"
            )

    async def _one(self, name: str, note: Note) -> None:
        began = time.monotonic()
        note(f"{name}: draining")
        if not await self._supervisor.rolling_restart([name]):
            raise Refused(f"{name} did not become ready again; nothing further was restarted")
        note(
            f"{name}: healthy after {time.monotonic() - began:.1f} s, waiting for its first requests to be routed"
        )
        until = time.monotonic() + ROUTED_S
        # The next one must not go before requests go to this one.
        while (missing := await self._unseen()) is None or name in missing:
            if time.monotonic() > until:
                raise Refused(
                    f"{name} is healthy but not routed to after {ROUTED_S:g} s; nothing further was restarted"
                )
            await asyncio.sleep(0.25)
        note(f"{name}: in service again after {time.monotonic() - began:.1f} s")

    async def _unseen(self) -> list[str] | None:
        states = self._supervisor.snapshot()
        if not self._plan.join.alone:
            # The frontends may be elsewhere, and count the workers of all nodes.
            return self._discovery.unregistered(states)
        return await unseen(self._frontend, states)
