"""The GPUs as NVML shows them: what they are, who holds them, how they are linked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from launcher.machine.model import Gpu, GpuHolder, GpuLink
from launcher.machine.nvml import Nvml, NvmlUnavailable, session, text
from launcher.machine.products import product_name
from launcher.machine.sockets import command

MIB = 1024**2

# nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t of nvml.h, the same since they exist.
_P2P_READ, _P2P_WRITE, _P2P_NVLINK = 0, 1, 2
_P2P_UNKNOWN = 6
_P2P_STATUS = {
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "the GPUs hang on different I/O hubs",
    4: "disabled by a registry key of the driver",
    5: "not supported",
    _P2P_UNKNOWN: "unknown to the driver",
}
_FABRIC_NONE, _FABRIC_COMPLETED = 0, 3
_FABRIC_STATE = {1: "not started", 2: "in progress", _FABRIC_COMPLETED: "completed"}


class Inventory(NamedTuple):
    """All that one look at NVML gave; empty with an `error` where NVML could not be asked."""

    gpus: tuple[Gpu, ...] = ()
    mig_devices: tuple[Gpu, ...] = ()
    links: tuple[GpuLink, ...] = ()
    driver_version: str = ""
    cuda_driver_version: tuple[int, int] | None = None
    error: str = ""


def inventory(nvml: Nvml | None = None, *, root: Path = Path("/")) -> Inventory:
    """Every GPU, its MIG devices and the links between GPUs. Blocking; never raises."""
    try:
        with session(nvml, root=root) as library:
            return _inventory(library, root / "proc")
    except NvmlUnavailable as error:
        return Inventory(error=str(error))
    except Exception as error:  # a broken driver must not keep a doctor from the other checks
        return Inventory(error=f"NVML failed: {type(error).__name__}: {error}")


def gpu_holders(
    uuids: Iterable[str], nvml: Nvml | None = None, *, root: Path = Path("/")
) -> dict[str, tuple[GpuHolder, ...]]:
    """Who has a context on each of these GPUs (or MIG devices), by UUID, now.

    Blocking (about 10 ms): call it in a thread. Raises NvmlUnavailable. A GPU that NVML does not know is
    left out. Processes of other PID namespaces do not appear: compare `free_mib` too.
    """
    found: dict[str, tuple[GpuHolder, ...]] = {}
    with session(nvml, root=root) as library:
        for uuid in uuids:
            handle = _ask(library, "nvmlDeviceGetHandleByUUID", uuid)
            if handle is not None:
                found[uuid] = _holders(library, handle, root / "proc")
    return found


def free_mib(uuid: str, nvml: Nvml | None = None, *, root: Path = Path("/")) -> int | None:
    """Free memory of a GPU or MIG device in MiB, or None where NVML does not know it.

    Blocking (about 10 ms): call it in a thread. Raises NvmlUnavailable.
    """
    with session(nvml, root=root) as library:
        handle = _ask(library, "nvmlDeviceGetHandleByUUID", uuid)
        memory = None if handle is None else _ask(library, "nvmlDeviceGetMemoryInfo", handle)
    return None if memory is None else int(memory.free) // MIB


def _inventory(nvml: Nvml, proc: Path) -> Inventory:
    handles: dict[int, Any] = {}
    gpus: list[Gpu] = []
    slices: list[Gpu] = []
    errors: list[str] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = _gpu(nvml, handle, index, proc)
        except nvml.NVMLError as error:  # a GPU that fell off the bus must not hide the others
            errors.append(f"GPU {index}: {error}")
            continue
        handles[index] = handle
        gpus.append(gpu)
        if gpu.mig:
            slices.extend(_mig_devices(nvml, handle, gpu, proc))
    version = _ask(nvml, "nvmlSystemGetCudaDriverVersion_v2") or 0
    return Inventory(
        gpus=tuple(gpus),
        mig_devices=tuple(slices),
        links=tuple(_link(nvml, handles, a, b) for a, b in itertools.combinations(sorted(handles), 2)),
        driver_version=text(_ask(nvml, "nvmlSystemGetDriverVersion") or ""),
        # 13000 is 13.0, 12080 is 12.8
        cuda_driver_version=(version // 1000, version % 1000 // 10) if version else None,
        error="; ".join(errors),
    )


def _gpu(nvml: Nvml, handle: Any, index: int, proc: Path, parent: Gpu | None = None) -> Gpu:
    name = text(nvml.nvmlDeviceGetName(handle))
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    fallback = parent.compute_capability if parent else (0, 0)
    major, minor = _ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle) or fallback
    mode = (1, 1) if parent else _ask(nvml, "nvmlDeviceGetMigMode", handle) or (0, 0)
    return Gpu(
        index=index,
        uuid=text(nvml.nvmlDeviceGetUUID(handle)),
        name=name,
        # GPUs without memory of their own (integrated ones) report none.
        memory_mib=int(memory.total) // MIB if memory else 0,
        memory_free_mib=int(memory.free) // MIB if memory else 0,
        compute_capability=(int(major), int(minor)),
        mig=bool(mode[0]),
        product=parent.product if parent else product_name(name),
        holders=_holders(nvml, handle, proc),
        fabric="" if parent else _fabric(nvml, handle),
        node=_ask(nvml, "nvmlDeviceGetNumaNodeId", handle),
    )


def _mig_devices(nvml: Nvml, handle: Any, gpu: Gpu, proc: Path) -> Iterable[Gpu]:
    for number in range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        device = _ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if device is not None:
            yield _gpu(nvml, device, gpu.index, proc, parent=gpu)


def _holders(nvml: Nvml, handle: Any, proc: Path) -> tuple[GpuHolder, ...]:
    running = _ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or []
    return tuple(
        GpuHolder(int(each.pid), command(int(each.pid), proc=proc), int(each.usedGpuMemory or 0) // MIB)
        for each in running
    )


def _fabric(nvml: Nvml, handle: Any) -> str:
    """State in the NVSwitch fabric; empty where there is none or the driver does not say."""
    # The first is deprecated and works with every driver so far; the second takes over where it is gone.
    for question, answer in (
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfoV_t"),
    ):
        structure = getattr(nvml, answer, None)
        if structure is None:
            continue
        from ctypes import byref

        info = structure()
        if _ask(nvml, question, handle, byref(info)) is None:  # it answers 0
            continue
        state, status = int(info.state), int(info.status)
        if state == _FABRIC_NONE:
            return ""
        broken = f" with error {status}" if status and state == _FABRIC_COMPLETED else ""
        return _FABRIC_STATE.get(state, f"state {state}") + broken
    return ""


def _link(nvml: Nvml, handles: dict[int, Any], a: int, b: int) -> GpuLink:
    def status(kind: int) -> int:
        answer = _ask(nvml, "nvmlDeviceGetP2PStatus", handles[a], handles[b], kind)
        return _P2P_UNKNOWN if answer is None else int(answer)

    peer = status(_P2P_READ) or status(_P2P_WRITE)
    return GpuLink(a, b, p2p=peer == 0, nvlink=status(_P2P_NVLINK) == 0, reason=_P2P_STATUS.get(peer, ""))


def _ask(nvml: Nvml, question: str, *arguments: Any) -> Any:
    """The answer of NVML, or None where this GPU, driver or binding does not support the question."""
    try:
        return getattr(nvml, question)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None
