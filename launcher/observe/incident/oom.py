"""Whether the kernel killed for want of memory: it says so only in a counter of the control group."""

from __future__ import annotations

from pathlib import Path


def kills(root: Path = Path("/")) -> int | None:
    """Processes of this control group that the kernel has killed for want of memory; None where nothing says.

    Version 2: `memory.events` (https://docs.kernel.org/admin-guide/cgroup-v2.html); version 1: `memory.oom_control`.
    """
    for path in (
        root / "sys/fs/cgroup" / _own(root).lstrip("/") / "memory.events",
        root / "sys/fs/cgroup/memory.events",
        root / "sys/fs/cgroup/memory/memory.oom_control",
    ):
        try:
            words = path.read_text().split()
        except OSError:
            continue
        if "oom_kill" in words[:-1]:
            return int(words[words.index("oom_kill") + 1])
    return None


def _own(root: Path) -> str:
    """The control group of this process; "/" in a container that has a namespace of its own."""
    try:
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[3:]
    except OSError:
        pass
    return "/"
