"""A stand-in for NVML and for the folders of /proc and /sys, shared by these tests."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

MIB = 1024**2


class NvmlError(Exception):
    """What the stand-in raises, as pynvml's NVMLError."""


class FabricInfo(ctypes.Structure):
    """The fields that matter of nvmlGpuFabricInfo_t."""

    _fields_ = (("status", ctypes.c_uint), ("state", ctypes.c_uint))


@dataclass
class Device:
    """A GPU or MIG device of the stand-in; also its own handle."""

    uuid: str
    name: str = "NVIDIA H200"
    total: int = 143771
    free: int = 143313
    capability: tuple[int, int] = (9, 0)
    mig: list[Device] | None = None
    running: list[tuple[int, int | None]] = field(default_factory=list)
    fabric: tuple[int, int] = (3, 0)
    lost: bool = False


@dataclass
class FakeNvml:
    """As much of pynvml as the launcher asks, over given devices; counts sessions."""

    devices: list[Device]
    init_error: str = ""
    peers: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Pair of UUIDs to (status of reads and writes, status of NVLink); (0, 0) where not given."""
    bytes_texts: bool = False
    opened: int = 0
    closed: int = 0
    NVMLError: type[Exception] = NvmlError
    c_nvmlGpuFabricInfo_t: type[FabricInfo] = FabricInfo

    def _text(self, value: str) -> Any:
        return value.encode() if self.bytes_texts else value

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NvmlError(self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._text("580.159.04")

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        if self.devices[index].lost:
            raise NvmlError("GPU is lost")
        return self.devices[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Device:
        for device in self.devices:
            for each in (device, *(device.mig or [])):
                if each.uuid == uuid:
                    return each
        raise NvmlError("Not Found")

    def nvmlDeviceGetUUID(self, handle: Device) -> Any:
        return self._text(handle.uuid)

    def nvmlDeviceGetName(self, handle: Device) -> Any:
        return self._text(handle.name)

    def nvmlDeviceGetMemoryInfo(self, handle: Device) -> Any:
        if not handle.total:
            raise NvmlError("Not Supported")
        return SimpleNamespace(total=handle.total * MIB, free=handle.free * MIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Device) -> Any:
        if handle.uuid.startswith("MIG-"):
            raise NvmlError("Not Supported")
        return list(handle.capability)

    def nvmlDeviceGetMigMode(self, handle: Device) -> Any:
        if handle.mig is None:
            raise NvmlError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Device) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Device, index: int) -> Device:
        if index >= len(handle.mig or []):
            raise NvmlError("Not Found")
        return (handle.mig or [])[index]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Device) -> Any:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib * MIB)
            for pid, mib in handle.running
        ]

    def nvmlDeviceGetP2PStatus(self, a: Device, b: Device, kind: int) -> int:
        peer, nvlink = self.peers.get((a.uuid, b.uuid), (0, 0))
        return nvlink if kind == 2 else peer

    def nvmlDeviceGetGpuFabricInfo(self, handle: Device, info: Any) -> int:
        info._obj.state, info._obj.status = handle.fabric
        return 0


@pytest.fixture
def device() -> type[Device]:
    return Device


@pytest.fixture
def fake_nvml() -> Callable[..., FakeNvml]:
    """Makes a stand-in over as many H200 as asked, or over given devices."""

    def make(devices: int | list[Device], **options: Any) -> FakeNvml:
        if isinstance(devices, int):
            devices = [Device(f"GPU-{index:x}{index:x}-aaaa") for index in range(devices)]
        return FakeNvml(devices, **options)

    return make


@pytest.fixture
def make_root(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Makes a folder that stands for `/`, with the given files in it."""

    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make
