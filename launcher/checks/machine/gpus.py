"""The GPUs: how many, which kind, in a state to be used, and free."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.machine.base import MIB_PER_GIB, flag, gpu_names, gpu_workers, listed, used_gpus
from launcher.findings import Finding, Severity
from launcher.machine import Gpu, Machine, product_name
from launcher.plan.model import Plan
from launcher.target.schema import Target

IDLE_MIB = 2048
"""Memory in use on a GPU that nobody holds: the driver's own 458 MiB on an H200, with room for other products."""


def count(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The machine must show as many GPUs as the plan's workers compute on.

    GPUs are counted as CUDA would show them to a process of the launcher: an inherited CUDA_VISIBLE_DEVICES, or a
    container that was given fewer, hides the rest. A GB200 node has four GPUs; a target of five needs two such nodes.
    """
    needed = len(gpu_names(plan)) if gpu_workers(plan) else 0
    if not needed:
        return
    if not machine.gpus:
        yield Finding(
            code="gpu-none",
            what=f"{target.name} needs {needed} GPU{'s' if needed > 1 else ''} and none is here: "
            f"{machine.gpu_error or 'NVML shows none'}",
            where="hardware.gpus",
            why="every worker would exit while it loads",
            fix="run where the GPUs are (in Kubernetes: request nvidia.com/gpu), simulate with --engine mocker, "
            f"or plan for elsewhere with --machine {(target.hardware.gpu or ['H200'])[0]}:{needed}",
        )
    elif len(machine.visible) < needed:
        hidden = len(machine.gpus) - len(machine.visible)
        yield Finding(
            code="gpu-count",
            what=f"{target.name} needs {needed} GPUs, {len(machine.visible)} of {len(machine.gpus)} "
            + (f"are visible ({machine.visible_by})" if hidden else "are here"),
            where=machine.visible_by.partition("=")[0] if hidden else "hardware.gpus",
            why="the workers without a GPU would exit while they load",
            fix=_too_few(target, machine, needed),
        )


def _too_few(target: Target, machine: Machine, needed: int) -> str:
    if len(machine.gpus) >= needed:
        return (
            f"let {needed} GPUs be visible: unset {machine.visible_by.partition('=')[0]}, or name more in it"
        )
    per_node = target.hardware.gpus_per_node
    if per_node is not None and needed > per_node >= len(machine.gpus):
        return (
            f"a node of this kind has {per_node}: put the roles on two nodes (--roles), or take an 8-GPU node"
        )
    return "lower workers.*.count with --set, or take a node with more GPUs"


def visible(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """An inherited CUDA_VISIBLE_DEVICES must name GPUs that are here, each once.

    CUDA reports no error for a bad entry: it hides that GPU and all after it in the list, and all of them where one
    is named twice.
    """
    if gpu_workers(plan):
        for problem in machine.visible_problems:
            yield Finding(
                code="gpu-visible",
                what=problem,
                severity=Severity.WARNING,
                where=problem.partition("=")[0],
                why="the process silently gets fewer GPUs than the list names",
                fix="name GPUs of this machine: "
                + listed((gpu.cuda_name for gpu in machine.gpus), most=8)
                + " (or their UUIDs)",
            )


def unreadable(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Every GPU of the machine should answer NVML: one that does not has fallen off the bus or waits for a reset."""
    if gpu_workers(plan) and machine.gpus and machine.gpu_error:
        yield Finding(
            code="gpu-unreadable",
            what=f"not every GPU answers: {machine.gpu_error}",
            severity=Severity.WARNING,
            why="it cannot be used, and CUDA programs may hang or fail while it is in this state",
            fix="look for Xid errors in dmesg, drain the node and reset the GPU",
        )


def kind(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The GPUs must be of a product that the target was written for.

    Kernel choices, memory shares and batch sizes of a target hold for one product; on another it fails late
    (a kernel that does not exist there, out of memory) or runs slowly with nothing said.
    """
    wanted = {product_name(name) for name in target.hardware.gpu}
    wrong = [gpu for gpu in used_gpus(plan, machine) if gpu.product not in wanted] if wanted else []
    if wrong and gpu_workers(plan):
        products = sorted({gpu.product for gpu in wrong})
        yield Finding(
            code="gpu-kind",
            what=f"GPU {listed(gpu.cuda_name for gpu in wrong)}: {', '.join(products)}; {target.name} is for "
            + " or ".join(target.hardware.gpu),
            where="hardware.gpu",
            why="its kernel choices, memory shares and batch sizes hold for that product",
            fix=f"choose a target for {products[0]} (launcher targets), or copy this one and tune it",
        )


def mixed(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """With different products in one machine, indices mean different GPUs to NVML and to CUDA.

    NVML counts in the order of the PCI bus, CUDA by default from the fastest on; CUDA_DEVICE_ORDER=PCI_BUS_ID makes
    them agree, and a UUID is always right.
    """
    products = sorted({gpu.product for gpu in machine.gpus})
    loose = [
        process.name
        for process in gpu_workers(plan)
        if process.env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        and any(name.isdecimal() for name in process.gpus)
    ]
    if len(products) > 1 and loose:
        yield Finding(
            code="gpu-mixed",
            what=f"this machine has {' and '.join(products)}, and {listed(loose)} name GPUs by index",
            severity=Severity.WARNING,
            why="CUDA's default order is by speed, NVML's by bus: a worker could land on another GPU than planned",
            fix="--set engine.env.CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )


def mig(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Workers need whole GPUs: MIG devices have no peer access to each other, and a slice does not hold the model.

    On a GPU in MIG mode CUDA shows a process one slice, never the whole; NVLink and CUDA IPC between slices do not
    exist (NVIDIA's MIG user guide, "Application considerations").
    """
    sliced = [gpu for gpu in used_gpus(plan, machine) if gpu.mig]
    if sliced and gpu_workers(plan):
        yield Finding(
            code="gpu-mig",
            what=f"MIG is on for GPU {listed(gpu.cuda_name for gpu in sliced)}",
            why="a slice has a part of the memory and no peer access: neither tensor parallelism nor NIXL's fast lane",
            fix="turn MIG off on that GPU (its administrator: nvidia-smi -i INDEX -mig 0), or take another node",
        )


def memory_size(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """A GPU must have the memory that the target counts on; products come in several sizes (H100 with 80 and 94 GB)."""
    wanted = target.hardware.gpu_memory_gib
    if wanted is None or not gpu_workers(plan):
        return
    small = [gpu for gpu in used_gpus(plan, machine) if 0 < gpu.memory_mib < wanted * MIB_PER_GIB]
    if small:
        least = min(gpu.memory_mib for gpu in small) / MIB_PER_GIB
        yield Finding(
            code="gpu-memory",
            what=f"GPU {listed(gpu.cuda_name for gpu in small)} has {least:.0f} GiB, "
            f"{target.name} counts on {wanted:g}",
            where="hardware.gpu_memory_gib",
            why="the model or the KV cache that the target was sized for does not fit",
            fix="choose a target for this GPU (launcher targets)",
        )


def held(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The GPUs must be free: an engine takes nearly all memory and exits where another process has it.

    vLLM refuses to start unless `--gpu-memory-utilization` of the GPU is free. The usual holder is an engine process
    that outlived its launcher; NVML does not show processes of other containers, only that their memory is gone.
    """
    if machine.simulated:
        return
    for gpu in used_gpus(plan, machine):
        need = _needed_mib(plan, gpu, machine)
        if gpu.memory_free_mib < need:
            severity = Severity.ERROR
        elif gpu.holders or gpu.memory_used_mib > IDLE_MIB:
            severity = Severity.WARNING
        else:
            continue
        if not gpu_workers(plan):
            return
        unseen = "no process that is visible from here: another container's, or one just ending"
        who = listed(map(str, gpu.holders)) or unseen
        wants = f"; the workers there want {need} MiB" if need else ""
        yield Finding(
            code="gpu-held",
            what=f"GPU {gpu.cuda_name}: {gpu.memory_free_mib} of {gpu.memory_mib} MiB free{wants}; held by {who}",
            severity=severity,
            why="a worker that finds too little memory exits after minutes of loading, or gets a small KV cache",
            fix="end "
            + (listed(f"pid {holder.pid}" for holder in gpu.holders) if gpu.holders else "the holder")
            + ", or leave this GPU out with CUDA_VISIBLE_DEVICES",
            link="vllm#55510",
        )


def _needed_mib(plan: Plan, gpu: Gpu, machine: Machine) -> int:
    """Free memory that the workers on this GPU ask for at start, in MiB; 0 where they take what there is."""
    share = 0.0
    for process in gpu_workers(plan):
        if any(machine.gpu(name) == gpu for name in process.gpus):
            try:
                share += float(flag(process, "--gpu-memory-utilization") or 0)
            except ValueError:
                continue  # the engine's own parser refuses it
    return int(gpu.memory_mib * share)
