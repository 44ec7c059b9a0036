"""Where things are written, and the clock: caches, the run's folder, the time."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.machine.base import GIB, gib, gpu_workers
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan
from launcher.target.schema import Target

CACHES = (
    "VLLM_CACHE_ROOT",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "HF_MODULES_CACHE",
    "CUDA_CACHE_PATH",
)
CACHE_LEAST, CACHE_ENOUGH = GIB // 2, 5 * GIB
"""Compiled code of one model is a few GiB; under the least a first start cannot finish."""
RUN_LEAST = 64 * 1024**2
"""Discovery entries, engine files and the incident of one run are far smaller."""

# Their changes are not announced by inotify to other readers, or their clock is another machine's.
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "fuse", "virtiofs")

_FIRST_SANE, _LAST_SANE = 1_735_689_600, 4_102_444_800
"""The years 2025 and 2100: this code is younger than the first."""


def caches(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The folders of compiled code must be writable and have room.

    A cache that cannot be written costs minutes at every start, or the start itself; a full disk is reported by the
    engines as anything from a compile error to a crash.
    """
    seen: set[str] = set()
    for process in gpu_workers(plan):
        for name in CACHES:
            path = process.env.get(name, "")
            if not path or path in seen:
                continue
            seen.add(path)
            if machine.probe.writable(path) is False:
                yield Finding(
                    code="cache-readonly",
                    what=f"{name}={path} cannot be written",
                    where="--cache-dir",
                    why="kernels are compiled into it at the first start; the worker would fail there",
                    fix="choose a writable folder with --cache-dir, or mount the volume writable",
                )
                return  # they all live in one folder: one word is enough
            free = machine.probe.disk_free(path)
            if free is not None and free < CACHE_ENOUGH:
                yield Finding(
                    code="disk-low",
                    what=f"{gib(free)} free where {name}={path} is",
                    severity=Severity.ERROR if free < CACHE_LEAST else Severity.WARNING,
                    where="--cache-dir",
                    why="a first start compiles a few GiB of kernels and graphs into it",
                    fix=f"free {gib(CACHE_ENOUGH)}, or choose a larger disk with --cache-dir",
                )
                return


def run_folder(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The run's own folder must be writable: discovery, the engines' files and the incident file are in it."""
    if machine.probe.writable(plan.run_dir) is False:
        yield Finding(
            code="state-readonly",
            what=f"{plan.run_dir} cannot be made",
            where="--state-dir",
            why="discovery, engine files and the incident file are written there",
            fix="choose a writable folder with --state-dir",
        )


def run_disk(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The run's own folder needs some room, on a local disk.

    It holds the discovery entries, which expire ten seconds after their last touch by this machine's clock and are
    followed by inotify: on a network file system the times are the server's, and changes are not announced.
    """
    if machine.probe.writable(plan.run_dir) is False:
        return  # `state-readonly` says it
    free = machine.probe.disk_free(plan.run_dir)
    if free is not None and free < RUN_LEAST:
        yield Finding(
            code="state-disk-low",
            what=f"{gib(free)} free where {plan.run_dir} is",
            where="--state-dir",
            why="discovery entries that cannot be written make workers vanish",
            fix="free some space, or choose another disk with --state-dir",
        )
    kind = machine.probe.file_system(plan.discovery_dir) or ""
    if kind.partition(".")[0] in NETWORK:
        yield Finding(
            code="state-network",
            what=f"{plan.discovery_dir} is on {kind}",
            severity=Severity.WARNING,
            where="--state-dir",
            why="discovery entries expire by file time and are followed by inotify: workers can vanish or never appear",
            fix="a local disk or tmpfs: --state-dir /tmp/launcher",
            link="dynamo#4138, dynamo#9325",
        )


def log_folder(log_dir: str, machine: Machine) -> Iterator[Finding]:
    """The folder of `--log-dir` must be writable: every process's log and the incidents of the run go there."""
    # Of a file in it: a folder that is there must be one.
    if machine.probe.writable(f"{log_dir}/launcher.log") is False:
        yield Finding(
            code="logs-readonly",
            what=f"{log_dir} cannot be made or written",
            where="--log-dir",
            why="each process's log would be kept there",
            fix="choose a writable folder with --log-dir, or leave it out: the log is on standard output too",
        )


def clock(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """A clock that is years off makes every certificate invalid: downloads and tokens fail with misleading errors."""
    now = machine.probe.now()
    if now is not None and not _FIRST_SANE <= now <= _LAST_SANE:
        import time

        yield Finding(
            code="clock-wrong",
            what=f"this machine says it is {time.strftime('%Y-%m-%d', time.gmtime(max(0, min(now, 1 << 40))))}",
            severity=Severity.WARNING,
            why="TLS certificates count as expired or not yet valid, so that downloads fail; log times mean nothing",
            fix="set the clock (chronyc makestep, or the hypervisor's time service)",
        )
