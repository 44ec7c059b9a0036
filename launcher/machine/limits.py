"""What this process may use: RAM, CPUs, control group, /dev/shm, rlimits, capabilities, namespaces."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from launcher.machine.model import Cgroup, Namespaces

_NO_LIMIT = 1 << 60
"""Control groups of version 1 print a number near 2**63 for `no limit`."""

# Inode numbers of the first namespaces, fixed in Linux (include/linux/proc_ns.h).
_INITIAL_IPC = "ipc:[4026531839]"
_INITIAL_PID = "pid:[4026531836]"

# include/uapi/linux/capability.h, in order of their bits.
# ruff: noqa: SIM905 - one string reads better than a list of 41
_CAPABILITIES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
    "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT "
    "SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE "
    "AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ "
    "PERFMON BPF CHECKPOINT_RESTORE"
).split()


def memory(root: Path = Path("/"), group: Cgroup | None = None) -> tuple[int, int]:
    """RAM that this process may use and what of it is available now, in bytes; (0, 0) without /proc."""
    table = dict(line.partition(":")[::2] for line in _text(root / "proc/meminfo").splitlines())

    def kib(name: str) -> int:
        words = table.get(name, "").split()
        return int(words[0]) * 1024 if words else 0

    total, available = kib("MemTotal"), kib("MemAvailable")
    group = cgroup(root) if group is None else group
    if group.memory_limit is None or group.memory_limit >= total > 0:
        return total, available
    return group.memory_limit, min(available, max(0, group.memory_limit - _memory_used(root)))


def cpus(group: Cgroup) -> int:
    """CPUs that this process may use, at least 1."""
    here = len(os.sched_getaffinity(0))
    return max(1, min(here, math.ceil(group.cpu_quota)) if group.cpu_quota else here)


def cgroup(root: Path = Path("/")) -> Cgroup:
    """The tightest limits of this process's control group and its parents."""
    mounted = root / "sys/fs/cgroup"
    if (mounted / "cgroup.controllers").exists():
        folders = list(_folders(mounted, _paths(root).get("", "/")))
        quotas = [_quota_v2(_text(folder / "cpu.max")) for folder in folders]
        return Cgroup(
            2,
            _least(_number(_text(folder / "memory.max")) for folder in folders),
            min((quota for quota in quotas if quota), default=None),
            _least(_number(_text(folder / "pids.max")) for folder in folders),
        )
    paths = _paths(root)

    def folders_of(controller: str) -> list[Path]:
        return list(_folders(mounted / controller, paths.get(controller, "/")))

    quotas = [
        _quota_v2(_text(folder / "cpu.cfs_quota_us") + " " + _text(folder / "cpu.cfs_period_us"))
        for folder in folders_of("cpu")
    ]
    return Cgroup(
        1 if (mounted / "memory").exists() else 0,
        _least(_number(_text(folder / "memory.limit_in_bytes")) for folder in folders_of("memory")),
        min((quota for quota in quotas if quota), default=None),
        _least(_number(_text(folder / "pids.max")) for folder in folders_of("pids")),
    )


def shared_memory(root: Path = Path("/")) -> tuple[int, int]:
    """Size of /dev/shm and what is free of it, in bytes; (0, 0) where there is none."""
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def memlock() -> int | None:
    """Soft limit of locked memory in bytes, None where unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def open_files() -> tuple[int, int]:
    """Soft and hard limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Unlimited is -1 to the system call; the kernel's own ceiling is what it then means.
    return tuple(_NO_LIMIT if each == resource.RLIM_INFINITY else each for each in (soft, hard))  # type: ignore[return-value]


def capabilities(root: Path = Path("/")) -> frozenset[str]:
    """Effective capabilities of this process, without `CAP_`."""
    for line in _text(root / "proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            bits = int(line.split()[1], 16)
            return frozenset(name for bit, name in enumerate(_CAPABILITIES) if bits >> bit & 1)
    return frozenset()


def namespaces(root: Path = Path("/")) -> Namespaces:
    """Which IPC and PID namespace this process is in, and whether they are the machine's own."""
    ipc, pid = (_link(root / "proc/self/ns" / kind) for kind in ("ipc", "pid"))
    return Namespaces(
        host_ipc=None if not ipc else ipc == _INITIAL_IPC,
        host_pid=None if not pid else pid == _INITIAL_PID,
        ipc=ipc,
        pid=pid,
        ptrace_scope=_number(_text(root / "proc/sys/kernel/yama/ptrace_scope")),
    )


def _memory_used(root: Path) -> int:
    """Bytes that count against the control group's limit and cannot be dropped: page cache is left out."""
    paths = _paths(root)
    for base, usage, inactive in (
        (root / "sys/fs/cgroup" / paths.get("", "/").lstrip("/"), "memory.current", "inactive_file"),
        (
            root / "sys/fs/cgroup/memory" / paths.get("memory", "/").lstrip("/"),
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ):
        used = _number(_text(base / usage))
        if used is not None:
            lines = _text(base / "memory.stat").splitlines()
            counters = dict(line.split(maxsplit=1) for line in lines if " " in line)
            return used - (_number(counters.get(inactive, "0")) or 0)
    return 0


def _paths(root: Path) -> dict[str, str]:
    """Controller to this process's path in its hierarchy; version 2 is the controller without a name."""
    found: dict[str, str] = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _folders(mounted: Path, path: str) -> Iterator[Path]:
    """The group's folder and its parents'. A path that is not there belongs to another cgroup namespace:
    then the mount itself is this process's group."""
    folder = mounted / path.lstrip("/")
    while folder != mounted and mounted in folder.parents:
        if folder.is_dir() and ".." not in folder.parts:
            yield folder
        folder = folder.parent
    yield mounted


def _quota_v2(text: str) -> float | None:
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _least(values: Iterator[int | None]) -> int | None:
    return min((value for value in values if value is not None and value < _NO_LIMIT), default=None)


def _number(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
