"""What is on a machine, as pure values; nothing here looks, `detect` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.machine.probe import Probe, Unknown
from launcher.machine.products import Arch

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A process that has a context on a GPU."""

    pid: int
    """As this PID namespace numbers it; NVML shows no processes of other namespaces."""
    name: str
    """Its command, or empty where /proc does not say."""
    memory_mib: int
    """GPU memory in MiB; 0 where the driver does not tell (in most containers)."""

    def __str__(self) -> str:
        memory = f", {self.memory_mib} MiB" if self.memory_mib else ""
        return f"pid {self.pid} ({self.name or 'unknown'}{memory})"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG device of a GPU."""

    index: int
    """NVML's index, which is PCI bus order; a MIG device has its GPU's."""
    uuid: str
    """`GPU-...`, or `MIG-...` of a MIG device."""
    name: str
    """As NVML gives it: `NVIDIA H200`."""
    memory_mib: int
    memory_free_mib: int
    compute_capability: tuple[int, int]
    mig: bool = False
    """MIG mode is on, or this is a MIG device."""
    product: str = ""
    """Normalised: `H200`, `B200`, `GB200`, ..."""
    holders: tuple[GpuHolder, ...] = ()
    fabric: str = ""
    """State of an NVSwitch GPU in its fabric: `completed` once usable, empty where it needs none."""
    node: int | None = None
    """NUMA node, or None where unknown."""

    @property
    def memory_used_mib(self) -> int:
        return self.memory_mib - self.memory_free_mib

    @property
    def cuda_name(self) -> str:
        """What CUDA_VISIBLE_DEVICES calls it: a MIG device's UUID, else the index.

        The index holds under CUDA_DEVICE_ORDER=PCI_BUS_ID, and always among equal GPUs.
        """
        return self.uuid if self.uuid.startswith("MIG-") else str(self.index)


@dataclass(frozen=True, slots=True)
class GpuLink:
    """How two GPUs reach each other's memory."""

    a: int
    """NVML index, the lower of the two."""
    b: int
    p2p: bool
    """The driver allows peer reads and writes."""
    nvlink: bool
    """Peer traffic goes over NVLink (or NVSwitch), not PCIe."""
    reason: str = ""
    """Why peer access is refused, as NVML puts it."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface."""

    name: str
    address: str = ""
    """Its first IPv4 address, or empty."""
    loopback: bool = False
    up: bool = True


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Limits of this process's control group and its parents, the tightest of each kind."""

    version: int = 0
    """1 or 2; 0 where none is mounted."""
    memory_limit: int | None = None
    """Bytes, or None where there is no limit."""
    cpu_quota: float | None = None
    """CPUs' worth of time, or None."""
    pids_max: int | None = None
    """Processes and threads, or None."""


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Which kernel namespaces this process is in; None where it cannot be told."""

    host_ipc: bool | None = None
    host_pid: bool | None = None
    ipc: str = ""
    """`ipc:[4026531839]`: equal on two processes that share it."""
    pid: str = ""
    ptrace_scope: int | None = None
    """Yama: 0 any process of the same user may be traced, 1 descendants, 2 with CAP_SYS_PTRACE, 3 none."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is here, all that planning and the checks may ask. `detect()` makes one, so does `like()`."""

    hostname: str
    arch: Arch
    cpus: int
    """CPUs that this process may use: affinity and control group honoured."""
    memory_bytes: int
    """RAM that this process may use: the machine's, or the control group's limit where that is less."""
    memory_available_bytes: int
    """The part of it that is not in use now."""
    gpus: tuple[Gpu, ...] = ()
    """Every GPU that NVML shows."""
    mig_devices: tuple[Gpu, ...] = ()
    visible: tuple[Gpu, ...] = ()
    """Those that CUDA would use under the inherited environment, in its order."""
    visible_by: str = ""
    """The variable and value that restricted `visible`, as `CUDA_VISIBLE_DEVICES=2,3`; empty without."""
    visible_problems: tuple[str, ...] = ()
    """What is wrong with that value."""
    gpu_error: str = ""
    """Why NVML, or one of the GPUs, could not be asked; empty when all was read."""
    links: tuple[GpuLink, ...] = ()
    driver_version: str = ""
    cuda_driver_version: tuple[int, int] | None = None
    """The newest CUDA that the driver serves without a compatibility package."""
    cuda_runtime_version: tuple[int, int] | None = None
    """The CUDA that the installed packages or the image bring."""
    shm_bytes: int = 0
    """Size of /dev/shm; 0 where there is none."""
    shm_free_bytes: int = 0
    memlock_bytes: int | None = None
    """Soft limit of locked memory; None means unlimited."""
    nofile: int = 0
    """Soft limit of open files."""
    nofile_hard: int = 0
    capabilities: frozenset[str] = frozenset()
    """Effective ones, without `CAP_`: `SYS_PTRACE`, `IPC_LOCK`, ... as a pod manifest names them."""
    namespaces: Namespaces = Namespaces()
    ephemeral_range: tuple[int, int] = (32768, 60999)
    """First and last port that the kernel gives to outgoing connections."""
    reserved_ports: frozenset[int] = frozenset()
    """Ports inside that range which the kernel leaves alone (ip_local_reserved_ports)."""
    unprivileged_port_start: int = 1024
    interfaces: tuple[Interface, ...] = ()
    cgroup: Cgroup = Cgroup()
    packages: Mapping[str, str] = field(default_factory=dict)
    """Installed distributions that matter here and their versions."""
    python_version: str = ""
    simulated: bool = False
    """Made by `like()`: a machine to plan for, not the one that this runs on."""
    probe: Probe = field(default_factory=Unknown, compare=False)
    """Answers to questions that need an argument: who holds a port, how much disk is free."""

    @property
    def loopback_only(self) -> bool:
        """Whether no interface but loopback carries an IPv4 address."""
        return not any(
            interface.address and interface.up and not interface.loopback for interface in self.interfaces
        )

    def gpu(self, name: str) -> Gpu | None:
        """The GPU that a plan names, by index into all GPUs, UUID or unique prefix of one; None without."""
        if name.isdecimal():
            found = [gpu for gpu in self.gpus if str(gpu.index) == name]
        else:
            found = [gpu for gpu in (*self.gpus, *self.mig_devices) if name and gpu.uuid.startswith(name)]
        return found[0] if len(found) == 1 else None

    def link(self, a: Gpu, b: Gpu) -> GpuLink | None:
        """How `a` and `b` reach each other, or None where the driver did not say."""
        low, high = sorted((a.index, b.index))
        return next((link for link in self.links if (link.a, link.b) == (low, high)), None)

    @staticmethod
    def like(product: str, gpus: int | None = None, **changes: Any) -> Machine:
        """A machine with that product, to plan for from elsewhere or to test with; see `simulated.like`."""
        from launcher.machine.simulated import like

        return like(product, gpus, **changes)
