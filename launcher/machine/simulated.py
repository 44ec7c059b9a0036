"""Machines that are not here: to plan for from a laptop, and to test with."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from launcher.findings import did_you_mean
from launcher.machine.model import GIB, Cgroup, Gpu, GpuLink, Interface, Machine, Namespaces
from launcher.machine.products import PRODUCTS, Arch, Product, product_name
from launcher.machine.sockets import Holder

T = TypeVar("T")


def like(product: str, gpus: int | None = None, *, arch: Arch | None = None, **changes: Any) -> Machine:
    """A well set-up node with GPUs of that product, all linked by NVLink and free.

    `gpus` is how many (by default as many as one ordinary node has); `changes` are fields of Machine to set
    otherwise. Raises KeyError for a product that is not known, with the nearest one in its text.
    """
    known = PRODUCTS.get(product_name(product).upper())
    if known is None:
        raise KeyError(f"no GPU product {product!r}: {did_you_mean(product.upper(), PRODUCTS)}")
    made = tuple(make_gpu(known, index) for index in range(known.node_gpus if gpus is None else gpus))
    machine = Machine(
        hostname=f"like-{known.name.lower()}",
        arch=arch or known.arch,
        cpus=16 * max(1, len(made)),
        memory_bytes=256 * GIB * max(1, len(made)),
        memory_available_bytes=250 * GIB * max(1, len(made)),
        gpus=made,
        visible=made,
        links=tuple(
            GpuLink(a.index, b.index, p2p=True, nvlink=True) for a, b in itertools.combinations(made, 2)
        ),
        driver_version="580.159.04",
        cuda_driver_version=(13, 0),
        shm_bytes=128 * GIB,
        shm_free_bytes=128 * GIB,
        memlock_bytes=None,
        nofile=1 << 20,
        nofile_hard=1 << 20,
        capabilities=frozenset({"SYS_PTRACE", "IPC_LOCK", "NET_BIND_SERVICE"}),
        namespaces=Namespaces(host_ipc=True, host_pid=False, ptrace_scope=1),
        interfaces=(
            Interface("lo", "127.0.0.1", loopback=True),
            Interface("eth0", "10.0.0.2"),
        ),
        cgroup=Cgroup(version=2),
        python_version="3.12.3",
        simulated=True,
    )
    return dataclasses.replace(machine, **changes)


def make_gpu(product: Product, index: int, **changes: Any) -> Gpu:
    """A free GPU of that product with a UUID made of its index."""
    gpu = Gpu(
        index=index,
        uuid=f"GPU-{index:08x}-0000-4000-8000-000000000000",
        name=f"NVIDIA {product.name}",
        memory_mib=product.memory_mib,
        # The driver keeps some for itself: 458 MiB on an idle H200.
        memory_free_mib=product.memory_mib - 458,
        compute_capability=product.compute_capability,
        product=product.name,
        fabric="completed",
    )
    return dataclasses.replace(gpu, **changes)


@dataclass(frozen=True, slots=True)
class Scripted:
    """A probe with given answers, for tests. Paths answer for everything below them."""

    disks: Mapping[str, int] = field(default_factory=dict)
    file_systems: Mapping[str, str] = field(default_factory=dict)
    read_only: tuple[str, ...] = ()
    ports: Mapping[int, Holder | str] = field(default_factory=dict)
    """Port to who holds it, or to the error of a bind."""
    clock: float = field(default_factory=time.time)

    def disk_free(self, path: str) -> int | None:
        return _below(self.disks, path)

    def file_system(self, path: str) -> str | None:
        return _below(self.file_systems, path)

    def writable(self, path: str) -> bool | None:
        return _below(dict.fromkeys(self.read_only, False), path) is None

    def port_error(self, host: str, port: int) -> str | None:
        answer = self.ports.get(port)
        if answer is None:
            return None
        return answer if isinstance(answer, str) else "Address already in use"

    def port_holder(self, host: str, port: int) -> Holder | None:
        answer = self.ports.get(port)
        return answer if isinstance(answer, Holder) else None

    def now(self) -> float | None:
        return self.clock


def _below(answers: Mapping[str, T], path: str) -> T | None:
    """The answer of the longest folder that `path` is in."""
    inside = [folder for folder in answers if path == folder or path.startswith(folder.rstrip("/") + "/")]
    return answers[max(inside, key=len)] if inside else None
