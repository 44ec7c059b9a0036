"""What the code of a plan needs of GPU and driver: compute capability, CUDA version, the NVSwitch fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.checks.machine.base import gpu_workers, listed, used_gpus
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan
from launcher.target.schema import Target

_ARCH = re.compile(r"^(\d+)\.(\d)[af]?(\+PTX)?$")

BLACKWELL = (10, 0)
_NEEDS: tuple[tuple[str, str, tuple[int, int], str], ...] = (
    # FP8 activations on FP4 weights are an instruction of Blackwell's tensor cores.
    ("OVERRIDE_QUANT_ALGO", "W4A8_MXFP4_MXFP8", BLACKWELL, "TRT-LLM#12558"),
    ("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "1", BLACKWELL, ""),
)
"""Variable, value, least compute capability, evidence."""

_DRIVER_OF_CUDA = {13: 580, 12: 525}
"""CUDA's major version to the driver branch it needs (CUDA toolkit release notes, table of driver versions)."""


def arch_list(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """TORCH_CUDA_ARCH_LIST must hold the compute capability of the GPUs that are here.

    Engines compile kernels at the first start for the architectures in this list. Code for 9.0 does not run on a 10.0
    GPU: the worker fails with "no kernel image is available" minutes after its start.
    """
    for process in gpu_workers(plan):
        value = process.env.get("TORCH_CUDA_ARCH_LIST", "")
        entries = [entry for entry in re.split(r"[;,\s]+", value) if entry]
        parsed = [_ARCH.match(entry) for entry in entries]
        if not entries or not all(
            parsed
        ):  # empty means the GPU's own; a word such as `Hopper` is torch's to judge
            continue
        for gpu in used_gpus(plan, machine):
            if gpu.cuda_name not in process.gpus and gpu.uuid not in process.gpus:
                continue
            if not any(match and _runs_on(match, gpu.compute_capability) for match in parsed):
                major, minor = gpu.compute_capability
                yield Finding(
                    code="gpu-arch",
                    what=f"TORCH_CUDA_ARCH_LIST={value} for GPU {gpu.cuda_name}, a {gpu.product} with {major}.{minor}",
                    where="engine.env.TORCH_CUDA_ARCH_LIST",
                    why="kernels compiled at start would not run on it",
                    fix=f'--set engine.env.TORCH_CUDA_ARCH_LIST="{major}.{minor}"',
                )
                return


def _runs_on(match: re.Match[str], capability: tuple[int, int]) -> bool:
    built = int(match.group(1)), int(match.group(2))
    if match.group(3):  # PTX is translated for any newer GPU
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]


def number_formats(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """MXFP8 activations on MXFP4 weights need Blackwell; on Hopper the engine fails while it loads, or ignores it."""
    for name, value, least, evidence in _NEEDS:
        users = [process for process in gpu_workers(plan) if process.env.get(name, "").upper() == value]
        old = [gpu for gpu in used_gpus(plan, machine) if (0, 0) < gpu.compute_capability < least]
        if users and old:
            major, minor = old[0].compute_capability
            yield Finding(
                code="gpu-format",
                what=f"{name}={value} on {old[0].product} (compute capability {major}.{minor})",
                where=f"engine.env.{name}",
                why=f"it needs {least[0]}.{least[1]} or newer (B200, GB200)",
                fix=f"remove {name} on this GPU: the checkpoint's own W4A16 works there",
                link=evidence,
            )


def driver(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The driver must serve the CUDA that the installed engine was built for.

    A driver serves every minor version of its own CUDA major and all older majors; a newer major needs a newer
    driver or the cuda-compat package (datacenter GPUs only).
    """
    runtime, serves = machine.cuda_runtime_version, machine.cuda_driver_version
    if runtime is None or serves is None or not gpu_workers(plan) or runtime[0] <= serves[0]:
        return
    branch = _DRIVER_OF_CUDA.get(runtime[0])
    yield Finding(
        code="driver-old",
        what=f"driver {machine.driver_version} serves CUDA {serves[0]}.{serves[1]}, "
        f"the installed engine is built for {runtime[0]}.{runtime[1]}",
        why="CUDA refuses to start: driver version is insufficient",
        fix=(f"driver {branch} or newer" if branch else "a newer driver")
        + f", an image with CUDA {serves[0]}, or the cuda-compat package in the image",
        link="https://docs.nvidia.com/deploy/cuda-compatibility/",
    )


def fabric(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """GPUs on NVSwitch must have joined the fabric before any CUDA program can start on them.

    Until the node's fabric manager has registered them, CUDA fails with error 802 (system not yet initialized).
    """
    waiting = [gpu for gpu in used_gpus(plan, machine) if gpu.fabric not in ("", "completed")]
    if waiting and gpu_workers(plan):
        yield Finding(
            code="gpu-fabric",
            what=f"GPU {listed(gpu.cuda_name for gpu in waiting)}: NVSwitch fabric is {waiting[0].fabric}",
            severity=Severity.ERROR,
            why="CUDA programs fail with error 802 until the fabric is up",
            fix="wait, or have the node's administrator start nvidia-fabricmanager (same version as the driver)",
        )
