"""The probe of this machine: asks the kernel at the moment of the call."""

from __future__ import annotations

import os
import time
from pathlib import Path

from launcher.machine import sockets

PSEUDO = ("proc", "sysfs", "cgroup", "cgroup2")
"""The kernel's own: root seems to be allowed to write there, and nothing can be made."""


class Local:
    """Answers for the machine that this runs on; see `probe.Probe` for what each means."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def disk_free(self, path: str) -> int | None:
        try:
            found = os.statvfs(_existing(path))
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def file_system(self, path: str) -> str | None:
        # The longest mount point that the path is under holds it; of two on one point, the later.
        where = os.path.realpath(_existing(path))
        best, kind = "", None
        try:
            lines = (self.root / "proc/self/mounts").read_text(errors="replace").splitlines()
        except OSError:
            return None
        for line in lines:
            _, point, kind_here, *_ = line.split(" ")
            point = point.replace("\\040", " ")
            inside = where == point or where.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, kind_here
        return kind

    def writable(self, path: str) -> bool | None:
        here = _existing(path)
        if os.path.isdir(here):
            return os.access(here, os.W_OK | os.X_OK) and self.file_system(here) not in PSEUDO
        # Nothing can be made below a file.
        return here == os.path.abspath(os.path.expanduser(path)) and os.access(here, os.W_OK)

    def port_error(self, host: str, port: int) -> str | None:
        error = sockets.can_bind(host, port)
        return None if error is None else error.strerror or str(error)

    def port_holder(self, host: str, port: int) -> sockets.Holder | None:
        return sockets.listener(port, host, proc=self.root / "proc")

    def now(self) -> float | None:
        return time.time()


def _existing(path: str) -> str:
    """The path itself, or the nearest parent that is there."""
    here = os.path.abspath(os.path.expanduser(path))
    while not os.path.exists(here) and here != os.path.dirname(here):
        here = os.path.dirname(here)
    return here
