"""The outer process: a minimal init around the launcher, so that nothing survives either of the two.

The outer forwards signals, reaps orphans, and when the inner (the launcher proper) ends for any reason ends every
descendant, removes what the inner had in custody, and exits with the inner's code. The inner watches the outer: when
that is gone, even by SIGKILL, the inner ends every descendant and itself. Works as PID 1 of a container and under a
shell alike.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import linux, procfs
from .custody import Custody

if TYPE_CHECKING:
    # For types alone: this module is loaded by itself by a process that stays small.
    from .logs import Format

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
LOST_INIT = 128 + signal.SIGKILL
"""Exit code of an inner process whose outer was killed; nobody is there to read it."""
END_S = 10.0
SAME_TIME_S = 0.5
"""What ends within this time before the inner ended with it."""
ending = threading.Event()
"""In the inner: set once the outer is gone. What ends from then on was ended by us, and is nobody's failure."""
TITLE = "serve-init"


def run_as_init(main: Callable[[Custody], int], *, title: str = TITLE, form: Format | None = None) -> int:
    """Fork; run `main` in the child, and an init around it in the parent. Both return the exit code.

    Call it before any thread is started and before anything heavy is imported: the parent keeps the memory that
    it has here. `main` gets the custody in which it notes folders and segments to remove; it should handle SIGUSR1
    and SIGUSR2, whose default is to end a process. A child that dies of signal n gives 128 + n. OSError where the
    kernel lacks what this needs (Linux 5.3). `form`: of the log, for what either of the two has to say after the other
    is gone; plain lines where there is none.

        sys.exit(run_as_init(serve))
    """
    custody = Custody()
    outer = os.getpid()
    outer_fd = os.pidfd_open(outer)
    linux.become_subreaper()
    # Without a default disposition the kernel would reap for us, and the exit code would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        # A session of its own: a terminal's Ctrl-C reaches the outer alone, which forwards it once.
        os.setsid()
        linux.become_subreaper()
        threading.Thread(
            target=_outlive_nobody, args=(outer_fd, custody, form), name="init-guard", daemon=True
        ).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask - {*FORWARDED, signal.SIGCHLD})
        return main(custody)
    os.close(outer_fd)
    if title:
        linux.retitle(title)
    code, killed_by, ended = _attend(pid)
    left = len(procfs.descendants(procfs.scan(), os.getpid()))
    whole = end_descendants(END_S)
    if killed_by is not None:
        # Nobody else can tell of this. Those that died with the launcher count too.
        told = f"{ended + left} processes ended" if whole else "some of its processes could not be ended"
        _say(f"{TITLE}: the launcher was killed by {_name(killed_by)}; {told}", form)
    for path in custody.clean():
        _say(f"launcher: could not remove {path}", form)
    # A signal that waits now has come too late to be forwarded; it must not replace the exit code.
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return code


def _attend(inner: int) -> tuple[int, int | None, int]:
    """Forward signals and reap until the inner process has ended.

    Returns its exit code, the signal that killed it, and how many others were found ended with it.
    """
    ignored = {number for number in FORWARDED if signal.getsignal(number) is signal.SIG_IGN}
    # nohup means it; an ignored SIGINT only says that some script started us in the background.
    ignored &= {signal.SIGHUP}
    # Children of an inner that is killed may be seen to end before it is.
    lately: list[float] = []
    while True:
        number = signal.sigwaitinfo({*FORWARDED, signal.SIGCHLD}).si_signo
        if number == signal.SIGCHLD:
            ended = _reap_all()
            now = time.monotonic()
            lately = [at for at in lately if now - at < SAME_TIME_S] + [now] * len(ended)
            if inner in ended:
                code = os.waitstatus_to_exitcode(ended[inner])
                others = len(lately) - 1
                return (code, None, others) if code >= 0 else (128 - code, -code, others)
        elif number not in ignored:
            # Not yet reaped, so the pid is still the inner's.
            os.kill(inner, number)


def _say(text: str, form: Format | None) -> None:
    """A line on stderr, in one write: the log itself may have died in the middle of whatever it did."""
    line = f"{text}\n" if form is None else form.own("error", text, time.time())
    with contextlib.suppress(OSError):
        os.write(2, line.encode("utf-8", "backslashreplace"))


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _reap_all() -> dict[int, int]:
    """Collect every zombie child: pid to wait status."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def end_descendants(timeout_s: float) -> bool:
    """SIGKILL and reap everything below this process; False where something was left after `timeout_s` seconds.

    Blocks. Deepest first, so that nothing that manages others (orted) goes before those.
    """
    deadline = time.monotonic() + timeout_s
    delay = 0.002
    while True:
        _reap_all()
        alive = [proc for proc in procfs.descendants(procfs.scan(), os.getpid()) if not proc.dead]
        if not alive:
            _reap_all()
            return True
        if time.monotonic() >= deadline:
            return False
        for proc in reversed(alive):
            procfs.send(proc, signal.SIGKILL)
        time.sleep(delay)
        delay = min(delay * 2, 0.05)


def _outlive_nobody(outer_fd: int, custody: Custody, form: Format | None) -> None:
    """Thread of the inner: when the outer is gone, end everything. Needs no event loop, which may be stuck."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    watch = select.poll()
    watch.register(outer_fd, select.POLLIN)
    while not watch.poll():
        pass
    ending.set()
    _say("launcher: the init process is gone; ending everything", form)
    try:
        end_descendants(END_S)
        custody.clean()
    finally:
        os._exit(LOST_INIT)
