"""What /proc says about processes, with identities that survive the reuse of a pid."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

_CHUNK = 1 << 16
_PF_EXITING = 0x4
"""Of the kernel's flags of a task (include/linux/sched.h), field 9 of /proc/PID/stat."""


@dataclass(frozen=True, slots=True)
class Proc:
    """One line of /proc/PID/stat. `start` is in clock ticks since boot; (pid, start) names a process for good."""

    pid: int
    start: int
    ppid: int
    pgid: int
    sid: int
    state: str
    """One letter of proc(5): R, S, D, T (stopped), t (traced), Z (zombie), X."""

    @property
    def key(self) -> tuple[int, int]:
        return (self.pid, self.start)

    @property
    def dead(self) -> bool:
        return self.state in "ZX"


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while chunk := os.read(fd, _CHUNK):
            parts.append(chunk)
        return b"".join(parts)
    finally:
        os.close(fd)


def _parse(pid: int, stat: bytes) -> Proc:
    # The command's name may hold blanks and brackets: everything after the last bracket is numbers.
    fields = stat[stat.rindex(b")") + 2 :].split(None, 20)
    return Proc(
        pid=pid,
        start=int(fields[19]),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        state=fields[0].decode(),
    )


def look(pid: int) -> Proc | None:
    """The process of that pid as it is now; None where there is none."""
    try:
        return _parse(pid, _read(f"/proc/{pid}/stat"))
    except (OSError, ValueError):
        return None


def dying(pid: int) -> bool:
    """Whether the process has begun to exit, or is gone. One with many threads takes tens of milliseconds to it."""
    try:
        stat = _read(f"/proc/{pid}/stat")
        return bool(int(stat[stat.rindex(b")") + 2 :].split(None, 7)[6]) & _PF_EXITING)
    except (OSError, ValueError):
        return True


def scan() -> dict[int, Proc]:
    """Every process of this pid namespace, by pid (some 10 us each)."""
    table: dict[int, Proc] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            proc = look(int(name))
            if proc is not None:
                table[proc.pid] = proc
    return table


def children(table: dict[int, Proc]) -> dict[int, list[Proc]]:
    """A scan turned around: parent pid to its children."""
    result: dict[int, list[Proc]] = {}
    for proc in table.values():
        result.setdefault(proc.ppid, []).append(proc)
    return result


def descendants(table: dict[int, Proc], root: int) -> list[Proc]:
    """All processes below `root` in a scan, parents before their children."""
    below = children(table)
    found: list[Proc] = []
    queue = list(below.get(root, ()))
    while queue:
        proc = queue.pop(0)
        found.append(proc)
        queue.extend(below.get(proc.pid, ()))
    return found


def environ(pid: int) -> bytes:
    """The environment that the process was started with, NUL between variables; empty where unreadable."""
    try:
        return _read(f"/proc/{pid}/environ")
    except OSError:
        return b""


def cmdline(pid: int) -> str:
    """The command line as one string; empty for a zombie or where unreadable."""
    try:
        return _read(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def run_delay(pid: int) -> float:
    """Seconds that the threads of a process have been ready to run without a CPU to run on, all added up."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(_read(f"/proc/{pid}/task/{task}/schedstat").split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return total / 1e9


def send(proc: Proc, signum: int) -> bool:
    """Signal exactly that process, never another that took its pid. False where it is gone or forbidden."""
    try:
        fd = os.pidfd_open(proc.pid)
    except OSError:
        return False
    try:
        # The descriptor pins a process; only then is it certain whose start time is read.
        now = look(proc.pid)
        if now is None or now.start != proc.start or now.dead:
            return False
        signal.pidfd_send_signal(fd, signum)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def reap(pid: int) -> bool:
    """Collect a zombie child. True where it was one and is gone now."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
