"""How KV gets from prefill to decode: peer access, NVLink, mutual visibility, namespaces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from launcher.checks.machine.base import exchanges_kv, gpu_workers, listed
from launcher.findings import Finding, Severity
from launcher.machine import Gpu, GpuLink, Machine
from launcher.plan.model import Plan, Process, Role
from launcher.target.schema import Target

GET_ZCOPY = "UCX_CUDA_IPC_ENABLE_GET_ZCOPY"


def kv_link(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The GPUs that exchange KV should reach each other's memory, over NVLink.

    Without peer access NIXL and UCX fall back to copies through host memory or TCP, and every answer is still 200:
    only the time to first token tells. On one H200 TCP moved 170 MB/s where CUDA IPC moved 3 GB/s.
    """
    pairs = _kv_pairs(target, plan, machine)
    refused = [link for link in pairs if not link.p2p]
    if refused:
        yield Finding(
            code="kv-no-p2p",
            what=f"no peer access between GPU {_pairs(refused)}: {refused[0].reason or 'the driver refuses it'}",
            severity=Severity.WARNING,
            why="KV would go through host memory or TCP, with nothing but a slow first token to show it",
            fix="place prefill and decode on GPUs that are linked (nvidia-smi topo -p2p r); in a virtual machine, "
            "have the GPUs passed through with their NVSwitches",
            link="vllm#55906, nixl#1195",
        )
    slow = [link for link in pairs if link.p2p and not link.nvlink]
    if slow:
        yield Finding(
            code="kv-no-nvlink",
            what=f"PCIe, no NVLink, between GPU {_pairs(slow)}",
            severity=Severity.WARNING,
            why="PCIe moves KV several times slower, and UCX may not use it for reads at all",
            fix="place prefill and decode on GPUs that share NVLink (nvidia-smi topo -m)",
            link="nixl#1097",
        )


def reads_without_nvlink(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """UCX turns CUDA IPC reads off where it sees no NVLink, and reads over TCP instead.

    So it does between two workers on one GPU. UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on turns them on again: 0.95 ms instead
    of some 18 for 3 MB, measured on one H200 with UCX_PROTO_INFO=y.
    """
    if not exchanges_kv(target, plan) or target.kv.transfer is None or target.kv.transfer.connector != "nixl":
        return
    if any(link.nvlink for link in machine.links) or not machine.gpus:
        return
    unset = [
        process.name
        for process in _peers(plan)
        if process.env.get(GET_ZCOPY, "").lower() not in ("on", "y", "yes", "1")
    ]
    if unset:
        yield Finding(
            code="kv-ipc-off",
            what=f"no NVLink here, and {listed(unset)} have no {GET_ZCOPY}",
            severity=Severity.WARNING,
            where=f"engine.env.{GET_ZCOPY}",
            why="UCX then moves KV over TCP, some twenty times slower than CUDA IPC",
            fix=f"--set engine.env.{GET_ZCOPY}=on",
            link="nixl#1097, vllm#52607",
        )


def mutual_visibility(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """A worker must see its peers' GPUs, after its own: CUDA IPC cannot open memory of a GPU that is hidden.

    The plan lists each worker's own GPUs first and all the others of the deployment behind them.
    """
    if not exchanges_kv(target, plan) or target.kv.transfer is None or target.kv.transfer.connector != "nixl":
        return
    peers = _peers(plan)
    everyone = {name for process in peers for name in process.gpus}
    for process in peers:
        value = process.env.get("CUDA_VISIBLE_DEVICES")
        missing = sorted(everyone - set(value.split(","))) if value is not None else []
        if missing:
            yield Finding(
                code="kv-peers-hidden",
                what=f"{process.name} has CUDA_VISIBLE_DEVICES={value} and does not see GPU {listed(missing)}",
                where="engine.env.CUDA_VISIBLE_DEVICES",
                why="CUDA IPC cannot reach a hidden GPU, and KV falls back to TCP with every answer still 200",
                fix="leave CUDA_VISIBLE_DEVICES to the launcher: own GPUs first, all the others after them",
                link="vllm#55906, nixl#1195",
            )


def tensor_parallel(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The GPUs of one tensor-parallel worker should be joined by NVLink.

    Each layer exchanges its results between all of them twice, and every token waits for it.
    """
    for process in gpu_workers(plan):
        links = _links(machine, itertools.combinations(_gpus(process, machine), 2))
        slow = [link for link in links if not (link.p2p and link.nvlink)]
        if slow:
            yield Finding(
                code="tp-no-nvlink",
                what=f"{process.name} spans GPU {_pairs(slow)} without NVLink",
                severity=Severity.WARNING,
                why="every layer's all-reduce goes over PCIe or host memory, many times slower",
                fix="choose linked GPUs with CUDA_VISIBLE_DEVICES (nvidia-smi topo -m), or tensor parallel size 1",
            )


def namespaces(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Workers that exchange KV by CUDA IPC must share the PID and the IPC namespace.

    All workers of one launcher do. Where a plan holds only one side (--roles), the other side runs in another
    container, and both need the machine's namespaces (hostIPC, hostPID or shareProcessNamespace).
    """
    if not exchanges_kv(target, plan):
        return
    spaces = machine.namespaces
    roles = {process.role for process in plan.workers}
    private = [
        name
        for name, shared in (("IPC (hostIPC)", spaces.host_ipc), ("PID (hostPID)", spaces.host_pid))
        if shared is False
    ]
    if not {Role.PREFILL, Role.DECODE} <= roles and private:
        yield Finding(
            code="namespace-private",
            what=f"only {' and '.join(sorted(roles))} here, and the container has a private "
            + " and a private ".join(private)
            + " namespace",
            severity=Severity.WARNING,
            why="CUDA IPC to the peers' container cannot work; KV falls back to TCP with every answer still 200",
            fix="run both roles under one launcher, or give both containers hostIPC and a shared PID namespace",
            link="vllm#55906, vllm#52607, ucx#11978",
        )
    elif target.hardware.host_ipc and spaces.host_ipc is False:
        yield Finding(
            code="ipc-private",
            what="the container has an IPC namespace of its own; the recipe sets hostIPC",
            severity=Severity.INFO,
            where="hardware.host_ipc",
            why="all workers of this launcher share it, so CUDA IPC works between them",
        )


def _peers(plan: Plan) -> tuple[Process, ...]:
    return tuple(process for process in gpu_workers(plan) if process.role in (Role.PREFILL, Role.DECODE))


def _gpus(process: Process, machine: Machine) -> list[Gpu]:
    found = (machine.gpu(name) for name in process.gpus)
    return [gpu for gpu in found if gpu is not None]


def _kv_pairs(target: Target, plan: Plan, machine: Machine) -> list[GpuLink]:
    if not exchanges_kv(target, plan):
        return []
    sides = {
        role: [gpu for process in _peers(plan) if process.role is role for gpu in _gpus(process, machine)]
        for role in (Role.PREFILL, Role.DECODE)
    }
    return _links(machine, itertools.product(sides[Role.PREFILL], sides[Role.DECODE]))


def _links(machine: Machine, pairs: Iterable[tuple[Gpu, Gpu]]) -> list[GpuLink]:
    found = (machine.link(a, b) for a, b in pairs if a.index != b.index)
    return sorted({link for link in found if link is not None}, key=lambda link: (link.a, link.b))


def _pairs(links: Iterable[GpuLink]) -> str:
    return listed(f"{link.a} and {link.b}" for link in links)
