"""What whoever runs a supervisor may plug in, and what all workers of one supervisor share."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launcher.plan.model import Plan, Process

from .custody import Custody
from .events import Event
from .logpump import LogPump
from .policy import RestartPolicy
from .watch import Lag, Watch

if TYPE_CHECKING:
    from .worker import Worker


def same_again(process: Process, incarnation: int) -> Process:
    """The default `respawn`: the same process, counted up."""
    return dataclasses.replace(process, incarnation=incarnation)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Calls out of supervision. One that raises is logged and otherwise ignored, `respawn` excepted."""

    respawn: Callable[[Process, int], Process] = same_again
    """The value of a process for its incarnation n, with fresh ports and files. Raising ends the run (exit 4)."""
    on_event: Callable[[Event], None] = lambda event: None
    """Everything that happens, in order, in the event loop's thread."""
    on_death: Callable[[Process, int], Awaitable[None] | None] = lambda process, incarnation: None
    """A process has ended or is taken for dead: called before anything else is done. A plain function has run when
    the call returns; what a coroutine function returns is awaited beside the rest, and before a restart."""
    on_stopped: Callable[[Process], bool] = lambda process: False
    """A process stands still (SIGSTOP) while others run: whether it may, for `Watch.dead_s`, because nobody is sent to
    it meanwhile. `recovered` tells that it goes on. Where it may not, it is taken for dead at once."""
    before_restart: Callable[[Process], Awaitable[None] | None] = lambda process: None
    """Awaited after the old tree is gone and before the new one starts, such as for GPU memory to be free."""
    is_cold: Callable[[str], bool] = lambda key: False
    """Whether the cache of that `warm_key` is still empty."""


@dataclass(slots=True)
class Shared:
    """What the workers of one supervisor have in common."""

    plan: Plan
    pump: LogPump
    hooks: Hooks
    policy: RestartPolicy
    watch: Watch
    run_id: str
    custody: Custody
    emit: Callable[[Event], None]
    failed: Callable[[Worker, str], None]
    """A worker has failed for good, and why."""
    workers: dict[str, Worker] = field(default_factory=dict)
    lag: Lag = field(default_factory=Lag)
    draining: bool = False
    """Set when the end begins: nothing is started any more."""
    killing: bool = False
    """Set once everything is to end at once."""
    frozen_at: float = float("-inf")
    """When every process was last seen stopped together (monotonic seconds)."""

    def log(self, message: str, level: str = "info") -> None:
        self.pump.log(message, level)

    def all_stopped(self) -> bool:
        """Whether every running process is stopped, and there are at least two: a frozen machine, not a hang."""
        vigils = [worker.vigil for worker in self.workers.values() if worker.child and worker.child.running]
        for vigil in vigils:
            if vigil is not None:
                vigil.look_stopped()
        return len(vigils) > 1 and all(vigil is not None and vigil.stopped for vigil in vigils)

    def call(
        self, what: str, hook: Callable[[], Awaitable[None] | None], timeout_s: float | None = None
    ) -> Awaitable[None]:
        """Call a hook now; the result is awaited for what it returned. Errors and a timeout are logged only."""
        try:
            result = hook()
        except Exception as error:  # a hook must not take the supervisor down
            self.log(f"{what} failed: {type(error).__name__}: {error}", "error")
            result = None
        return self._settle(what, result, timeout_s)

    async def _settle(self, what: str, result: Awaitable[None] | None, timeout_s: float | None) -> None:
        if result is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await result
        except TimeoutError:
            self.log(f"{what} did not return within {timeout_s or 0:g} s", "warning")
        except Exception as error:  # see above
            self.log(f"{what} failed: {type(error).__name__}: {error}", "error")
