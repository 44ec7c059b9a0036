"""One child process with its tree: start, notice of its end, stop, kill, reap."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import fnmatch
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from launcher.plan.model import Process, Stop

from . import procfs
from .events import ExitInfo
from .init import ending
from .linux import die_with
from .tree import MARKER, Tree

SETTLE_S = 2.0
"""What a tree gets to end by itself after its leader ended as asked."""
KILL_S = 10.0
"""How long a killed tree is waited for."""
_PIPE_BYTES = 256 << 10
_F_SETPIPE_SZ = 1031


def environment(
    process: Process, marker: str, scrub: Iterable[str] = (), base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What the child gets: `base` (ours by default) less the `scrub` patterns, the process's own, and the marker."""
    patterns = tuple(scrub)
    inherited = os.environ if base is None else base
    kept = {
        name: value
        for name, value in inherited.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    return {**kept, **process.env, MARKER: marker}


def write_files(files: Mapping[str, str]) -> None:
    """Write each text to its path with mode 0600, making missing folders (0700). OSError where that fails."""
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)


def _pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    # More room lets a child run on while the pump is busy; users have a quota, so this may be refused.
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, _F_SETPIPE_SZ, _PIPE_BYTES)
    return read, write


class Child:
    """A running child. Make one with `Child.spawn`, in the thread that runs the event loop.

    The leader stays a zombie until `finish` has ended its tree: until then its pid, group and session cannot
    be reused, so that signals reach nobody else.
    """

    def __init__(self, popen: subprocess.Popen[bytes], marker: str, stdout: int, stderr: int) -> None:
        self.pid = popen.pid
        self.stdout = stdout
        """Read ends of the output pipes; whoever reads them closes them."""
        self.stderr = stderr
        self.started_at = time.monotonic()
        self.exit: ExitInfo | None = None
        self.tree = Tree(popen.pid, marker)
        self.killed = False
        """Whether SIGKILL was needed, or asked for, to end the leader."""
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ExitInfo] = self._loop.create_future()
        self._pidfd = os.pidfd_open(popen.pid)
        self._on_exit: Callable[[ExitInfo], None] | None = None
        self._reaped = False
        self._loop.add_reader(self._pidfd, self._exited)

    @classmethod
    def spawn(
        cls,
        process: Process,
        *,
        marker: str,
        scrub: Iterable[str] = (),
        on_exit: Callable[[ExitInfo], None] | None = None,
    ) -> Child:
        """Start the process: in a session of its own, stdin empty, both outputs in pipes, its files written first.

        `on_exit` is called once, by the event loop, as soon as the leader has ended and before anything else
        happens. OSError where a file cannot be written or the program cannot be started.
        """
        write_files(process.files)
        out_read, out_write = _pipe()
        err_read, err_write = _pipe()
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of fork in a process with threads. What runs there before exec is one prctl
                # and one getppid: no lock, no allocation that another thread could be in the middle of.
                warnings.simplefilter("ignore", DeprecationWarning)
                popen = subprocess.Popen(
                    process.argv,
                    env=environment(process, marker, scrub),
                    stdin=subprocess.DEVNULL,
                    stdout=out_write,
                    stderr=err_write,
                    start_new_session=True,
                    close_fds=True,
                    preexec_fn=partial(die_with, os.getpid()),
                )
        except BaseException:
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            os.close(out_write)
            os.close(err_write)
        child = cls(popen, marker, out_read, err_read)
        child._on_exit = on_exit
        return child

    @property
    def running(self) -> bool:
        return self.exit is None

    def _exited(self) -> None:
        if ending.is_set():
            # Perhaps reaped already, by the thread that ends everything.
            self._loop.remove_reader(self._pidfd)
            return
        result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if result is None:
            return
        self._loop.remove_reader(self._pidfd)
        by_signal = result.si_code != os.CLD_EXITED
        self.exit = ExitInfo(
            code=None if by_signal else result.si_status,
            signal=result.si_status if by_signal else None,
            at=time.monotonic(),
        )
        try:
            if self._on_exit is not None:
                self._on_exit(self.exit)
        finally:
            if not self._ended.done():
                self._ended.set_result(self.exit)

    async def wait(self, timeout_s: float | None = None) -> ExitInfo | None:
        """Wait for the leader's end; None where `timeout_s` seconds passed first."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._ended), timeout_s)
        except TimeoutError:
            return None

    def signal(self, signum: int) -> bool:
        """Signal the leader alone; False where it has ended."""
        if self.exit is not None:
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, signum)
        except (ProcessLookupError, OSError):
            return False
        return True

    async def stop(self, stop: Stop, bound_s: float = float("inf")) -> bool:
        """End the child as `stop` says, in at most `bound_s` seconds; True where SIGKILL was not needed.

        One SIGTERM to the leader; after `leader_s` one to the rest of its process group, where `stop.group`;
        after `group_s` SIGKILL to the whole tree. Returns when the leader has ended; `finish` ends the rest.
        """
        until = time.monotonic() + bound_s
        self.signal(signal.SIGTERM)
        found = procfs.look(self.pid)
        if found is not None and found.state == "T":
            self.signal(signal.SIGCONT)  # a stopped process would only see the signal at its end
        if await self.wait(min(stop.leader_s, bound_s)) is not None:
            return not self.killed
        left = until - time.monotonic()
        if stop.group and left > 0 and not self.killed:
            # The leader had its one SIGTERM; a second one makes Dynamo's processes abort.
            self.tree.signal_group(signal.SIGTERM, spare_leader=True)
            if await self.wait(min(stop.group_s, left)) is not None:
                return not self.killed
        self.kill()
        await self.wait(KILL_S)
        return False

    def kill(self) -> None:
        """SIGKILL the whole tree now; `finish` waits for its end."""
        if self.exit is None:
            self.killed = True
        self.tree.kill_once()

    async def finish(self, settle_s: float = 0.0, timeout_s: float = KILL_S) -> list[procfs.Proc]:
        """After the leader's end: end and reap all that is left of the tree, and the leader itself.

        `settle_s` seconds are granted to what ends by itself. Returns what survived SIGKILL for `timeout_s`
        seconds: processes stuck in the kernel.
        """
        if self.exit is None:
            self.kill()
            if await self.wait(timeout_s) is None:
                return [proc for proc in self.tree.look() if not proc.dead]
        if settle_s > 0:
            await self.tree.settle(settle_s)
        survivors = await self.tree.kill(timeout_s)
        self._reap()
        return survivors

    def disown(self, late: Callable[[], None]) -> None:
        """Give up a leader that SIGKILL did not end: its name is a successor's now, and `on_exit` is not called any
        more. `late` is called when it ends after all."""

        def ended() -> None:
            self._loop.remove_reader(self._pidfd)
            with contextlib.suppress(ChildProcessError):  # reaped with the strays
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
            os.close(self._pidfd)
            late()

        # Popen would otherwise wait for a pid that may by then be another process's.
        self._popen.returncode = -signal.SIGKILL
        self._loop.add_reader(self._pidfd, ended)

    def _reap(self) -> None:
        if self._reaped:
            return
        self._reaped = True
        self._loop.remove_reader(self._pidfd)
        procfs.reap(self.pid)
        # Popen would otherwise wait for a pid that may by then be another process's.
        assert self.exit is not None
        self._popen.returncode = -self.exit.signal if self.exit.signal is not None else self.exit.code
        os.close(self._pidfd)
