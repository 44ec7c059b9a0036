"""CPU and memory of the host: architecture, RAM against offload, /dev/shm, locked memory."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.machine.base import GIB, exchanges_kv, gib, gpu_workers
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan
from launcher.target.schema import Target

SLACK = 0.97
"""What a machine or a tmpfs of a nominal size really has: the kernel keeps some."""
MEMLOCK_MIB = 1024
"""Enough for what NIXL and UCX register besides GPU memory."""


def architecture(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """A target for ARM64 nodes (GB200) does not run on x86-64, nor the other way round: images and wheels differ."""
    wanted = target.hardware.arch
    if wanted is not None and wanted != machine.arch and gpu_workers(plan):
        yield Finding(
            code="cpu-arch",
            what=f"this machine is {machine.arch}, {target.name} needs {wanted}",
            where="hardware.arch",
            why="its image and its tuning are for nodes of that architecture",
            fix=f"choose a target for {machine.arch} (launcher targets)",
        )


def ram(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The memory that the recipe requests for the pod; below it, loading weights on all workers at once can be killed.

    The machine's RAM counts, or the control group's limit where that is less: past the limit the kernel kills a
    worker (exit -9, no word in its log).
    """
    wanted = target.hardware.memory_gib * GIB
    if gpu_workers(plan) and 0 < machine.memory_bytes < wanted * SLACK:
        yield Finding(
            code="memory-small",
            what=f"{gib(machine.memory_bytes)} of memory{_limited(machine)}, the target's pod asks for {gib(wanted)}",
            severity=Severity.WARNING,
            where="hardware.memory_gib",
            why="a worker that passes the limit is killed by the kernel, without a line in its log",
            fix="raise the memory limit"
            if machine.cgroup.memory_limit
            else "use a larger node or fewer workers",
        )


def offload(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """KV offload takes its bytes of RAM for every rank at start, pinned: they must be there.

    Pinned memory cannot be swapped; where it does not fit, the workers are killed one after the other while they load.
    """
    ranks = sum(len(process.gpus) for process in gpu_workers(plan))
    if target.kv.offload is None or not ranks or not machine.memory_bytes:
        return
    need = target.kv.offload.bytes_per_rank * ranks
    # A fifth is left to the workers themselves: some 4 GiB each, and the weights' file cache while loading.
    room = int(machine.memory_bytes * 0.8)
    most = room // ranks // GIB
    if need > room:
        yield Finding(
            code="offload-memory",
            what=f"KV offload takes {ranks} x {gib(target.kv.offload.bytes_per_rank)} = {gib(need)}, "
            f"of {gib(machine.memory_bytes)} of memory{_limited(machine)}",
            where="kv.offload.bytes_per_rank",
            why="it is pinned at start: workers would be killed while they load",
            fix=f"at most {most} GiB per rank: --set kv.offload.bytes_per_rank={most * GIB}"
            if most
            else "turn offload off: --set kv.offload=null",
        )
    elif need > machine.memory_available_bytes:
        yield Finding(
            code="offload-memory",
            what=f"KV offload takes {gib(need)}, {gib(machine.memory_available_bytes)} is available now",
            severity=Severity.WARNING,
            where="kv.offload.bytes_per_rank",
            why="other processes hold the rest, and pinned memory cannot wait for them",
            fix="end what holds the memory, or lower kv.offload.bytes_per_rank",
        )


def shared_memory(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """/dev/shm carries NCCL's and UCX's buffers and the engines' message queues; Docker's default is 64 MiB.

    A full one kills a worker with SIGBUS, a bus error in code that has nothing to do with it.
    """
    wanted = target.hardware.shm_gib * GIB
    if not wanted or not gpu_workers(plan):
        return
    fix = f"docker run --shm-size={target.hardware.shm_gib}g, or in a pod an emptyDir of medium Memory on /dev/shm"
    if machine.shm_bytes < wanted * SLACK:
        yield Finding(
            code="shm-small",
            what=f"/dev/shm has {gib(machine.shm_bytes)}, the target wants {gib(wanted)}"
            if machine.shm_bytes
            else f"there is no /dev/shm, the target wants {gib(wanted)}",
            severity=Severity.ERROR if machine.shm_bytes < GIB else Severity.WARNING,
            where="hardware.shm_gib",
            why="a worker that fills it dies of SIGBUS",
            fix=fix,
            link="vllm#1771, vllm#6574",
        )
    elif machine.shm_free_bytes < machine.shm_bytes // 10:
        yield Finding(
            code="shm-full",
            what=f"{gib(machine.shm_free_bytes)} of {gib(machine.shm_bytes)} of /dev/shm is free",
            severity=Severity.WARNING,
            why="segments that a killed process left behind stay until somebody removes them",
            fix="look at /dev/shm; nccl-*, psm_* and ucx_* of processes that are gone can be removed",
            link="vllm#1771",
        )


def locked_memory(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """NIXL and UCX pin memory that they register; the limit must allow it, or the process have CAP_IPC_LOCK.

    Common defaults are 64 KiB to 8 MiB. What cannot be pinned is left to a slower transport.
    """
    limit = machine.memlock_bytes
    if not exchanges_kv(target, plan) or limit is None or "IPC_LOCK" in machine.capabilities:
        return
    if limit < MEMLOCK_MIB * 1024**2:
        yield Finding(
            code="memlock-low",
            what=f"at most {limit // 1024} KiB of memory may be locked, and there is no CAP_IPC_LOCK",
            severity=Severity.WARNING,
            why="NIXL and UCX cannot pin their buffers and take a slower lane",
            fix="ulimit -l unlimited (docker run --ulimit memlock=-1), or the capability IPC_LOCK in the pod",
        )


def _limited(machine: Machine) -> str:
    return " (control group's limit)" if machine.cgroup.memory_limit == machine.memory_bytes else ""
