"""Runs a plan: starts its processes, keeps them running, and stops them in the order that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable, Iterable

from launcher.findings import Exit
from launcher.plan.model import WORKER_ROLES, Plan, Role

from . import procfs
from .custody import Custody, mapped
from .events import Event, Failure, Kind, ProcessState, State
from .hooks import Hooks, Shared
from .logpump import LogPump
from .narrate import narrate
from .policy import RestartPolicy
from .reaper import reap_strays, sweep
from .watch import Watch
from .worker import Wait, Worker

LAST_LINES = 20
"""Lines of a failed process that are shown again at the end of a failed run."""
MOVE_S = 1.0
"""Before the drain of a failed run: the dead process's streams move to others meanwhile, which a frontend that was told
to stop does no more (Dynamo 1.6.1 answers them with 503)."""
SEGMENTS_S = 60.0
"""Between looks at the shared memory that the processes map."""
SEGMENTS_LOADING_S = 10.0
"""The same while a process loads, and makes it: what is killed then would leave it behind."""


class Supervisor:
    """Supervises one plan in the running event loop. Make it and use it there.

    supervisor = Supervisor(plan, LogPump())
    install_signals(supervisor)
    code = await supervisor.run()
    """

    def __init__(
        self,
        plan: Plan,
        pump: LogPump,
        *,
        hooks: Hooks | None = None,
        policy: RestartPolicy | None = None,
        watch: Watch | None = None,
        custody: Custody | None = None,
        run_id: str = "",
        head_start_s: float = 0.0,
    ) -> None:
        """`custody`: where folders and segments to remove are noted; `run_id` marks the environment of every child.

        `head_start_s`: for so long at most the other workers of each role wait until one of each has become ready.
        """
        self.plan = plan
        self.failure: Failure | None = None
        self._hooks = hooks or Hooks()
        self.launched = asyncio.Event()
        """Set when every process that is to start at once has been started."""
        self._over = asyncio.Event()
        self._hurry = asyncio.Event()
        self._head_start_s = head_start_s
        self._one_at_a_time = asyncio.Lock()
        self._segments_due = False
        self._shared = Shared(
            plan=plan,
            pump=pump,
            hooks=self._hooks,
            policy=policy or RestartPolicy(),
            watch=watch or Watch(),
            run_id=run_id or secrets.token_hex(4),
            custody=custody or Custody(),
            emit=self._emit,
            failed=self._failed,
        )
        self._workers = self._shared.workers
        for process in plan.processes:
            self._workers[process.name] = Worker(process, self._shared)

    # -- the run

    async def run(self) -> Exit:
        """Start everything, return when all has ended: 0 as asked, 4 failed for good, 5 killed at a deadline."""
        loop = asyncio.get_running_loop()
        unwatch_children = self._watch_children(loop)
        helpers = [asyncio.create_task(self._shared.lag.run()), asyncio.create_task(self._look_around())]
        for helper in helpers:
            helper.add_done_callback(self._helper_ended)
        lives = self._start_all()
        loop.call_soon(self.launched.set)  # after the first step of each life, which starts its process
        try:
            await self._over.wait()
            await self._drain()
        finally:
            self._shared.killing = True
            for worker in self._workers.values():
                worker.kill()
            await asyncio.gather(*lives, return_exceptions=True)
            for helper in helpers:
                helper.cancel()
            await sweep()
            unwatch_children()
        for life in lives:
            if (error := life.exception()) is not None:
                raise error
        code = self._code()
        self._emit(Event(Kind.FINISHED, detail=str(int(code))))
        return code

    def _start_all(self) -> list[asyncio.Task[None]]:
        """All at once; of those that share a cold cache, the first goes ahead, and so do those with a head start."""
        first: dict[str, Worker] = {}
        head: dict[object, Worker] = {}
        lives = []
        for worker in self._workers.values():
            key = worker.process.warm_key
            ahead = first.get(key) if key else None
            if key and ahead is None and self._hooks.is_cold(key):
                first[key] = worker
            wait = Wait([ahead], f"{ahead.name} to fill the cache") if ahead is not None else None
            if wait is None and self._head_start_s > 0:
                # A frontend and a helper are needed for any request, each of them.
                role = worker.process.role
                leader = head.setdefault(role if role in WORKER_ROLES else worker.name, worker)
                if leader is not worker:
                    wait = Wait(list(head.values()), f"{leader.name} to start", self._head_start_s)
            lives.append(asyncio.create_task(worker.run(wait), name=worker.name))
        for life in lives:
            life.add_done_callback(self._life_ended)
        return lives

    def _helper_ended(self, helper: asyncio.Task[None]) -> None:
        if not helper.cancelled() and (error := helper.exception()) is not None:
            # Without it ranks, stopped processes and zombies would go unseen, in silence.
            self.fail(f"the launcher's own supervision failed: {type(error).__name__}: {error}")

    def _life_ended(self, life: asyncio.Task[None]) -> None:
        # A life that raises is a fault of ours; without this the run would wait for ever.
        if not life.cancelled() and life.exception() is not None:
            self._over.set()

    def _watch_children(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Have the kernel tell of children that stop; returns what ends that. Outside the main thread the scan must do.

        A plain handler, because uvloop keeps SIGCHLD for its own subprocesses, which we do not use.
        """

        def changed(number: int, frame: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._child_changed)

        try:
            before = signal.signal(signal.SIGCHLD, changed)
        except ValueError:
            return lambda: None

        def restore() -> None:
            signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)

        return restore

    def _child_changed(self) -> None:
        for worker in self._workers.values():
            if worker.vigil is not None:
                worker.vigil.look_stopped()

    async def _look_around(self) -> None:
        segments_at = time.monotonic()
        while True:
            await asyncio.sleep(self._shared.watch.scan_s)
            try:
                table = procfs.scan()
            except OSError as error:  # no descriptor left: that may pass, and the deployment serves meanwhile
                self._shared.log(f"cannot look at the processes: {error}", "error")
                continue
            for worker in self._workers.values():
                if worker.vigil is not None:
                    worker.vigil.observe(table)
            reap_strays(table, self._leaders())
            whole = all(worker.healthy for worker in self._workers.values())
            pause_s = SEGMENTS_S if whole else SEGMENTS_LOADING_S
            if self._segments_due or time.monotonic() - segments_at > pause_s:
                segments_at = time.monotonic()
                await self._note_segments()

    def _leaders(self) -> set[int]:
        return {worker.child.pid for worker in self._workers.values() if worker.child is not None}

    async def _note_segments(self) -> None:
        """Write down the shared memory that the processes map now: after their end nothing tells whose it was."""
        self._segments_due = False
        table = procfs.scan()
        for worker in self._workers.values():
            if worker.child is not None:
                pids = [proc.pid for proc in worker.child.tree.look(table)]
                known = worker.segments
                known |= await asyncio.to_thread(mapped, pids)
                self._shared.custody.segments(known)

    def _code(self) -> Exit:
        if self.failure is not None:
            return Exit.PROCESS_FAILED
        if any(worker.killed for worker in self._workers.values()):
            return Exit.KILLED
        return Exit.OK

    # -- the end

    def stop(self, reason: str = "") -> None:
        """Begin the drain; a call while it runs changes nothing."""
        if not self._over.is_set():
            self._shared.log(f"stopping{': ' + reason if reason else ''}")
            self._over.set()

    def fail(self, reason: str) -> None:
        """The deployment as a whole has failed: drain, then exit code 4."""
        if self.failure is None:
            self.failure = Failure("", Role.HELPER, 0, reason, ())
            self._shared.log(reason, "error")
            self.stop("the deployment failed")

    def kill(self, reason: str = "") -> None:
        """End everything at once."""
        if not self._shared.killing:
            self._shared.log(f"killing everything{': ' + reason if reason else ''}", "warning")
        self._shared.killing = True
        self._over.set()
        self._hurry.set()
        for worker in self._workers.values():
            worker.kill()

    async def _drain(self) -> None:
        self._shared.draining = True
        for worker in self._workers.values():
            worker.start_no_more()
        self._emit(Event(Kind.DRAINING))
        await self._note_segments()
        served = any(worker.ever_ready.is_set() for worker in self._workers.values())
        pause_s = max(self.plan.deadlines.pause_s, MOVE_S if self.failure is not None else 0.0)
        if pause_s > 0 and served and not self._shared.killing:
            try:
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
            except TimeoutError:
                pass
        for stage in sorted({worker.process.stop_stage for worker in self._workers.values()}):
            await asyncio.gather(
                *(
                    worker.stop(self._bound_s(worker))
                    for worker in self._workers.values()
                    if worker.process.stop_stage == stage
                )
            )

    def _bound_s(self, worker: Worker) -> float:
        process = worker.process
        return self.plan.deadlines.drain_s.get(process.role, process.stop.total_s)

    def _failed(self, worker: Worker, reason: str) -> None:
        if self.failure is not None:
            return
        lines = self._shared.pump.last_lines(worker.name, LAST_LINES)
        process = worker.process
        self.failure = Failure(worker.name, process.role, process.incarnation, reason, tuple(lines))
        told = [f"{worker.name} failed: {reason}"]
        if lines:
            told.append(f"its last {len(lines)} lines:")
            told.extend(f"  {line}" for line in lines)
        self._shared.log("\n".join(told), "error")
        self.stop(f"{worker.name} failed")

    # -- what others ask

    def snapshot(self) -> list[ProcessState]:
        """Every process of the plan, in its order."""
        return [worker.snapshot() for worker in self._workers.values()]

    @property
    def draining(self) -> bool:
        """Whether the end has begun."""
        return self._shared.draining

    @property
    def healthy(self) -> bool:
        """Whether every process of the plan is ready and well now."""
        return not self.draining and all(worker.healthy for worker in self._workers.values())

    async def wait_healthy(self) -> bool:
        """Return True when every process has been ready once, False where the run ends before."""
        ready = asyncio.gather(*(worker.ever_ready.wait() for worker in self._workers.values()))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait((ready, over), return_when=asyncio.FIRST_COMPLETED)
            return ready.done()
        finally:
            ready.cancel()
            over.cancel()

    def late_s(self) -> float:
        """By how many seconds this event loop came late of late: what others seemed to do meanwhile proves nothing."""
        return self._shared.lag.recent()

    def condemn(self, name: str, reason: str) -> None:
        """Take a running process for dead, for a reason that only an observer of the whole can see."""
        self._workers[name].condemn(reason)

    async def rolling_restart(self, names: Iterable[str] = ()) -> bool:
        """Stop and start the named processes (all workers by default), one after the other, each ready before the next.

        False as soon as one does not become ready again. KeyError for an unknown name.
        """
        chosen = [self._workers[name] for name in names] or [
            worker
            for worker in self._workers.values()
            if worker.process.role not in (Role.FRONTEND, Role.HELPER)
        ]
        async with self._one_at_a_time:
            for worker in chosen:
                if self._over.is_set() or not await worker.restart():
                    return False
        return True

    def _emit(self, event: Event) -> None:
        worker = self._workers.get(event.process)
        stopping = worker is not None and worker.state is State.DRAINING
        if (line := narrate(event, self.draining or stopping, stopping=stopping)) is not None:
            self._shared.log(*line)
        if event.kind is Kind.HEALTHY:
            self._segments_due = True  # by now a process has made what it shares
        try:
            self._hooks.on_event(event)
        except Exception as error:  # a listener must not take the supervisor down
            self._shared.log(f"on_event failed: {type(error).__name__}: {error}", "error")
