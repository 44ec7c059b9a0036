"""The few Linux calls that Python's standard library lacks, through libc; loads nothing else.

Kept free of other imports of the package: the outer init process holds only what this file and `init` need.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)
# Resolved here, once: looking a symbol up between fork and exec could meet a lock that another thread holds.
_prctl = _libc.prctl


def _call(option: int, value: int) -> None:
    if _prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper(on: bool = True) -> None:
    """Make orphaned descendants children of this process, or no longer. OSError where the kernel refuses."""
    _call(PR_SET_CHILD_SUBREAPER, int(on))


def die_with(parent: int) -> None:
    """For use between fork and exec: end with `parent` (a pid), even if it has ended already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)


def retitle(title: str) -> None:
    """Show `title` as this process's name and command line; does nothing where /proc does not allow it.

    The outer and the inner process would otherwise look the same, so that `pkill -f launcher` reached both: two
    SIGTERMs where one was meant, or a SIGKILL of the two layers that look after each other.
    """
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end
        room = end - start
        if room <= 0:
            return
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(title.encode()[: room - 1].ljust(room, b"\0"))
        name = ctypes.create_string_buffer(title.encode()[:15])
        _prctl(PR_SET_NAME, name, 0, 0, 0)
    except (OSError, ValueError, IndexError):
        return
