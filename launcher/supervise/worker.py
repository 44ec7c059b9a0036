"""One supervised process over all its incarnations: a small state machine around `Child`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launcher.plan.model import UNREADY, Process, Role

from .aio import first_of
from .child import SETTLE_S, Child
from .custody import drop_segments
from .events import Event, ExitInfo, Kind, ProcessState, State
from .hooks import Shared
from .policy import RestartBudget
from .vigil import Vigil

LOADING = "it was loading, and did not end by SIGTERM"
HOOK_S = 5.0
"""How long a restart waits for `on_death`."""
CANNOT_START = 127
"""Exit code recorded for a program that could not be started, as a shell has it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a first start waits for."""

    ahead: Sequence[Worker]
    """Until each of these has been ready once, ..."""
    why: str
    most_s: float | None = None
    """... for so long at most, in seconds."""


class Worker:
    """Runs one process of the plan, and runs it again when policy says so."""

    def __init__(self, process: Process, shared: Shared) -> None:
        self.process = process
        self.name = process.name
        self.state = State.STARTING
        self.child: Child | None = None
        self.vigil: Vigil | None = None
        self.restarts = 0
        self.last_exit: ExitInfo | None = None
        self.killed = False
        """Whether it had to be killed after being told to stop, with what it may have had in hand."""
        self.ever_ready = asyncio.Event()
        self._shared = shared
        self._budget = RestartBudget(shared.policy, at_once=process.role is Role.FRONTEND)
        self._stopping = False
        self._planned = False
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._reset()

    def _reset(self) -> None:
        self.phase, self.detail = "", ""
        self.phases: dict[str, float] = {}
        self.started_at: float | None = None
        self.ready_at: float | None = None
        self.healthy = False
        self._ready.clear()
        self._condemned = asyncio.Event()
        self.segments: set[str] = set()
        """Shared memory that the tree was seen to map."""
        self._withdrawn = False
        self._withdrawal: asyncio.Task[None] | None = None

    # -- the life

    async def run(self, wait: Wait | None = None) -> None:
        """Until stopped or failed for good."""
        if wait is not None:
            self.state, self.phase = State.WAITING, f"waiting for {wait.why}"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait.most_s):
                    await first_of(_all_ready(wait.ahead), self._wake.wait())
        try:
            while not self._ending:
                self.state = State.STARTING
                self._reset()
                child = self._start()
                if child is not None:
                    await self._live(child)
                if self._withdrawal is not None:
                    await self._withdrawal
                if self._ending or not await self._again():
                    break
        finally:
            self.phase, self.healthy = "", False
            if self.state is not State.FAILED:
                self.state = State.STOPPED
            self._over.set()

    def _start(self) -> Child | None:
        process = self.process
        marker = f"{self._shared.run_id}/{self.name}/{process.incarnation}"
        try:
            child = Child.spawn(process, marker=marker, scrub=self._shared.plan.scrub, on_exit=self._exited)
        except (OSError, ValueError) as error:
            self.detail = f"cannot start {process.argv[0]}: {getattr(error, 'strerror', None) or error}"
            self._exited(ExitInfo(CANNOT_START, None, time.monotonic()))
            return None
        self.child, self.started_at = child, child.started_at
        self._emit(Kind.STARTED, pid=child.pid)
        return child

    async def _live(self, child: Child) -> None:
        self.vigil = Vigil(self.process, child, self._shared, self)
        await first_of(child.wait(), self._condemned.wait())
        self.vigil.end()
        asked = self._stopping or self._planned
        survivors = await child.finish(SETTLE_S if asked and not child.killed else 0.0)
        if child.running:
            log, name, pid = self._shared.log, self.name, child.pid
            child.disown(lambda: log(f"pid {pid}, an earlier {name} that SIGKILL could not end, has ended"))
        await self.vigil.output.read_out()
        self.child = self.vigil = None
        # What a killed process leaves in /dev/shm would fill it, restart by restart.
        if self.segments:
            await asyncio.to_thread(drop_segments, self.segments)
        if survivors:
            self._emit(
                Kind.SURVIVORS, detail=", ".join(f"pid {proc.pid} ({proc.state})" for proc in survivors)
            )
        else:
            self._emit(Kind.REAPED, pid=child.pid)

    async def _again(self) -> bool:
        """After a death: wait as policy says and take the next incarnation; False where the death is final."""
        delay: float | None = 0.0
        if not self._planned:
            now = time.monotonic()
            served_s = now - self.ready_at if self.ready_at is not None else 0.0
            delay = self._budget.died(now, ever_ready=self.ever_ready.is_set(), served_s=served_s)
        self._planned = False
        if delay is None:
            self._fail(self._why_no_more())
            return False
        self.state, self.phase = State.BACKOFF, f"restarts in {delay:.1f} s"
        self._emit(Kind.RESTARTING, seconds=delay, detail=self.detail)
        await first_of(self._pause(delay), self._wake.wait())
        if self._ending:
            return False
        try:
            self.process = self._shared.hooks.respawn(self.process, self.process.incarnation + 1)
        except Exception as error:  # whatever it was, there is nothing to start
            self._fail(f"no new incarnation: {type(error).__name__}: {error}")
            return False
        self.restarts += 1
        return True

    def _why_no_more(self) -> str:
        policy = self._shared.policy
        if not policy.enabled:
            return ""
        if not self.ever_ready.is_set() and self.restarts < policy.budget:
            return "it has never been ready, and a new start ended the same way"
        return "the restart budget is spent"

    async def _pause(self, delay: float) -> None:
        process, shared = self.process, self._shared
        hook = shared.call(f"before_restart of {self.name}", lambda: shared.hooks.before_restart(process))
        await asyncio.gather(asyncio.sleep(delay), hook)

    def _fail(self, why: str) -> None:
        self.state = State.FAILED
        reason = "; ".join(part for part in (self.detail or str(self.last_exit or ""), why) if part)
        self._emit(Kind.FAILED, detail=reason, exit=self.last_exit)
        self._shared.failed(self, reason)

    # -- being told to end

    @property
    def _ending(self) -> bool:
        return self._stopping or self._shared.draining

    def start_no_more(self) -> None:
        """What runs may run on, but nothing is started: the deployment is being drained."""
        self._wake.set()

    async def stop(self, bound_s: float = float("inf")) -> None:
        """End for good, as the plan says, within `bound_s` seconds; returns when nothing of the tree is left."""
        self._stopping = True
        self._wake.set()
        await self._end_child(bound_s)
        await self._over.wait()

    def kill(self) -> None:
        """End for good, at once; whoever waits in `stop` goes on."""
        self._stopping = True
        self._wake.set()
        if self.child is not None and self.child.running:
            self.killed = True
            self.child.kill()

    async def restart(self) -> bool:
        """Stop as the plan says and start again, outside any budget; True when it is ready again."""
        if self._stopping or self._over.is_set():
            return False
        if self.child is not None and self.child.running and not self._condemned.is_set():
            self._planned = True
            self._ready.clear()
            await self._end_child(float("inf"))
        await first_of(self._ready.wait(), self._over.wait())
        return self._ready.is_set()

    async def _end_child(self, bound_s: float) -> None:
        child = self.child
        if child is None or not child.running:
            return
        if self.vigil is not None:
            self.vigil.end()
        self.state = State.DRAINING
        self._emit(Kind.DRAINING)
        if self._shared.killing:
            child.kill()
        loading = self.ready_at is None
        stop = (
            min(UNREADY, self.process.stop, key=lambda each: each.total_s) if loading else self.process.stop
        )
        clean = await child.stop(stop, bound_s)
        if self._stopping and not loading:
            self.killed = not clean
        if clean:
            self._emit(Kind.DRAINED, exit=child.exit)
        else:
            self._emit(Kind.KILLED, exit=child.exit, detail=LOADING if loading else "")

    # -- what the event loop and the vigil tell

    def _exited(self, exit_info: ExitInfo) -> None:
        self.last_exit, self.healthy = exit_info, False
        self._withdraw()
        known, self.detail = self.detail, self.detail or str(exit_info)
        self._emit(Kind.EXITED, exit=exit_info, detail=known)

    def _withdraw(self) -> None:
        if self._withdrawn:
            return
        self._withdrawn = True
        process, shared = self.process, self._shared
        call = shared.call(
            f"on_death of {self.name}", lambda: shared.hooks.on_death(process, process.incarnation), HOOK_S
        )

        async def settle() -> None:
            await call
            self._emit(Kind.WITHDRAWN)

        self._withdrawal = asyncio.create_task(settle())

    def condemn(self, reason: str) -> None:
        """Take the running process for dead: out of rotation, then SIGKILL to its tree."""
        child = self.child
        if child is None or not child.running or self._stopping or self._planned or self._condemned.is_set():
            return
        self.detail, self.healthy = reason, False
        self._condemned.set()
        self._withdraw()
        self._emit(Kind.HUNG, detail=reason)
        child.kill()

    def stands_still(self) -> bool:
        try:
            return self._shared.hooks.on_stopped(self.process)
        except Exception as error:  # a hook must not take the supervisor down
            self._shared.log(f"on_stopped of {self.name} failed: {type(error).__name__}: {error}", "error")
            return False

    def announced(self, phase: str, seconds: float) -> None:
        self.phases[phase] = seconds
        if self.state in (State.STARTING, State.LOADING):
            self.state, self.phase = State.LOADING, phase
        self._emit(Kind.PHASE, detail=phase, seconds=seconds)

    def became_ready(self) -> None:
        self.ready_at = time.monotonic()
        seconds = self.ready_at - (self.started_at or self.ready_at)
        self.phases["ready"] = seconds
        self.state, self.phase, self.healthy, self.detail = State.READY, "ready", True, ""
        self._emit(Kind.HEALTHY, seconds=seconds)
        self.ever_ready.set()
        self._ready.set()

    def health_changed(self, reason: str) -> None:
        self.healthy, self.detail = not reason, reason
        self._emit(Kind.UNHEALTHY if reason else Kind.RECOVERED, detail=reason)

    def too_late(self, reason: str) -> None:
        limit = self._shared.plan.deadlines.start_s
        self.condemn(f"not ready after {limit:g} s: {reason}")
        if not self.ever_ready.is_set():
            # The first start has its own, long deadline: another try of the same would only hide the failure.
            self._stopping = True
            self._fail("")

    def _emit(
        self,
        kind: Kind,
        *,
        detail: str = "",
        pid: int | None = None,
        exit: ExitInfo | None = None,
        seconds: float | None = None,
    ) -> None:
        process = self.process
        self._shared.emit(
            Event(kind, self.name, process.role, process.incarnation, detail, pid, exit, seconds)
        )

    def snapshot(self) -> ProcessState:
        """The state as /status shows it."""
        return ProcessState(
            name=self.name,
            role=self.process.role,
            pid=self.child.pid if self.child is not None and self.child.running else None,
            state=self.state,
            phase=self.phase,
            phases=dict(self.phases),
            restarts=self.restarts,
            ports=dict(self.process.ports),
            started_at=self.started_at,
            ready_at=self.ready_at,
            last_exit=self.last_exit,
            healthy=self.healthy,
            incarnation=self.process.incarnation,
            detail=self.detail,
        )


async def _all_ready(workers: Iterable[Worker]) -> None:
    for worker in workers:
        await worker.ever_ready.wait()
