"""What this process is allowed: capabilities, open files, processes, CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.machine.base import exchanges_kv, gpu_workers
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan
from launcher.target.schema import Target

FILES_BASE = 1024
FILES_PER_REQUEST = 4
"""Descriptors of one request in flight at the frontend: the client's socket, the workers' streams, some slack."""
THREADS_PER_PROCESS = 256
"""Threads and processes of one engine worker, roughly: thread pools grow with the CPUs."""


def capabilities(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The capabilities that the target's pod asks for.

    SYS_PTRACE lets UCX fetch a peer process's memory handles (pidfd_getfd) and read its memory; without Yama's
    restriction processes of one user may do so anyway.
    IPC_LOCK lifts the limit of locked memory (`memlock-low` judges that). A container that does not run as root has
    no effective capability, even if the pod adds it.
    """
    if not gpu_workers(plan):
        return
    asked = {name.upper().removeprefix("CAP_") for name in target.hardware.capabilities}
    for name in sorted(asked - machine.capabilities - {"IPC_LOCK"}):
        harmless = name == "SYS_PTRACE" and not machine.namespaces.ptrace_scope
        yield Finding(
            code="capability-missing",
            what=f"this process has no CAP_{name}"
            + ("; processes of one user may read each other here all the same" if harmless else ""),
            severity=Severity.INFO if harmless or not exchanges_kv(target, plan) else Severity.WARNING,
            where="hardware.capabilities",
            why="UCX opens a peer's memory with it, and takes TCP without"
            if name == "SYS_PTRACE"
            else "the recipe adds it",
            fix=f"securityContext.capabilities.add: [{name}] (docker run --cap-add {name}), with the process as root",
            link="ucx#11978",
        )


def open_files(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Every request in flight holds several descriptors in the frontend; at the limit new connections fail."""
    concurrency = target.workload.concurrency if target.workload else 0
    wanted = FILES_BASE + FILES_PER_REQUEST * concurrency
    if 0 < machine.nofile < wanted:
        raisable = machine.nofile_hard >= wanted
        yield Finding(
            code="nofile-low",
            what=f"at most {machine.nofile} open files (hard limit {machine.nofile_hard}); "
            f"{concurrency} requests at once want about {wanted}",
            severity=Severity.WARNING,
            why="past the limit, new connections fail with `too many open files`",
            fix=f"ulimit -n {wanted}"
            if raisable
            else f"docker run --ulimit nofile={wanted}, LimitNOFILE in systemd",
        )


def processes(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The control group may limit processes and threads; an engine that cannot start a thread dies or hangs."""
    limit = machine.cgroup.pids_max
    wanted = THREADS_PER_PROCESS * (len(gpu_workers(plan)) + 1)
    if limit is not None and gpu_workers(plan) and limit < wanted:
        yield Finding(
            code="pids-low",
            what=f"the control group allows {limit} processes and threads, "
            f"{len(plan.processes)} processes want some {wanted}",
            severity=Severity.WARNING,
            why="an engine that cannot start a thread dies with `can't start new thread`, or hangs",
            fix="raise the kubelet's podPidsLimit, or docker run --pids-limit",
        )


def cpus(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Each engine wants a core for its scheduler, one for its API half, and one for each GPU.

    With fewer the GPUs wait for the CPU: token times rise with nothing said (vLLM's optimization guide, "CPU
    resources for GPU deployments").
    """
    workers = gpu_workers(plan)
    wanted = sum(2 + len(process.gpus) for process in workers)
    if workers and machine.cpus < wanted:
        quota = machine.cgroup.cpu_quota
        yield Finding(
            code="cpus-few",
            what=f"{machine.cpus} CPUs{f' (quota of {quota:g})' if quota else ''} for {len(workers)} workers "
            f"that want {wanted}",
            severity=Severity.WARNING,
            why="the GPUs wait for the CPU between steps",
            fix="raise the CPU request and limit"
            if quota
            else "use a node with more cores, or fewer workers",
        )
