"""The NVIDIA management library: loaded only when a driver is there, and closed again."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

DRIVER_SIGNS = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")
"""Any of these under the root means an NVIDIA driver (dev/dxg: under WSL)."""


class Nvml(Protocol):
    """The part of `pynvml` that the launcher uses; tests pass an object of their own."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...
    def nvmlSystemGetCudaDriverVersion_v2(self) -> int: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetName(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMigMode(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Any: ...
    def nvmlDeviceGetP2PStatus(self, a: Any, b: Any, kind: int) -> int: ...


class NvmlUnavailable(Exception):
    """NVML cannot be asked; the text says why, for a person."""


def driver_present(root: Path = Path("/")) -> bool:
    """Whether this machine or container has an NVIDIA driver."""
    return any((root / sign).exists() for sign in DRIVER_SIGNS)


@contextlib.contextmanager
def session(nvml: Nvml | None = None, *, root: Path = Path("/")) -> Iterator[Nvml]:
    """NVML, initialised for the `with` block. Blocking: the first call on a machine can take a second.

    NVML makes no CUDA context and takes no GPU memory. Raises NvmlUnavailable.
    """
    library = nvml if nvml is not None else _load(root)
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise NvmlUnavailable(f"NVML did not start: {error}") from error
    try:
        yield library
    finally:
        with contextlib.suppress(library.NVMLError):
            library.nvmlShutdown()


def _load(root: Path) -> Nvml:
    if not driver_present(root):
        raise NvmlUnavailable("no NVIDIA driver here (no /proc/driver/nvidia, no /dev/nvidiactl)")
    try:
        # Through importlib: the module has no types, and nothing of it may load without a driver.
        return cast(Nvml, importlib.import_module("pynvml"))
    except ImportError as error:
        raise NvmlUnavailable(f"an NVIDIA driver is here, but nvidia-ml-py is not: {error}") from error


def text(value: str | bytes) -> str:
    """A string of NVML, which older bindings give as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
