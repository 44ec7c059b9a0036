"""What is seen of a deployment from outside: GPU memory over time, its processes, its sockets."""

from __future__ import annotations

import contextlib
import ipaddress
import threading
import time
from collections.abc import Iterable
from typing import Any

import psutil

from launcher.machine.gpus import inventory
from launcher.machine.nvml import driver_present


def gpu_used_mib() -> dict[int, int]:
    """Memory in use by GPU; empty where there is no driver."""
    if not driver_present():
        return {}
    return {gpu.index: gpu.memory_mib - gpu.memory_free_mib for gpu in inventory().gpus}


class MemoryWatch:
    """Samples the GPUs' memory in a thread, with the wall clock."""

    def __init__(self, every_s: float = 0.1) -> None:
        self.samples: list[tuple[float, dict[int, int]]] = []
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemoryWatch:
        if driver_present():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            with contextlib.suppress(Exception):
                self.samples.append((time.time(), gpu_used_mib()))

    def at(self, wall: float, gpu: int = 0) -> int | None:
        """MiB in use at that time: the last sample before it."""
        before = [used.get(gpu) for at, used in self.samples if at <= wall]
        return before[-1] if before else None

    def lowest(self, start: float, end: float, gpu: int = 0) -> tuple[int | None, float | None]:
        """The least MiB between two times, and when it was reached."""
        inside = [(used[gpu], at) for at, used in self.samples if start <= at <= end and gpu in used]
        return min(inside) if inside else (None, None)


def tree(pid: int) -> list[psutil.Process]:
    """A process and everything below it that is alive."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def alive(processes: Iterable[psutil.Process]) -> list[str]:
    """Those of the processes that still run, named."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {process.name()}")
    return found


def engine_core(pid: int) -> psutil.Process | None:
    """The engine's own process below a worker's leader: vLLM retitles it."""
    below = tree(pid)[1:]
    for process in below:
        with contextlib.suppress(psutil.Error):
            if "EngineCore" in " ".join([process.name(), *process.cmdline()]):
                return process
    return None


def sockets(pids: Iterable[int]) -> list[dict[str, Any]]:
    """Every listening TCP and every bound UDP socket of the processes."""
    found = []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            connections = process.net_connections(kind="inet")
            name = process.name()
        except psutil.Error:
            continue
        for each in connections:
            udp = each.type.name == "SOCK_DGRAM"
            if each.laddr and (udp or each.status == psutil.CONN_LISTEN):
                address = ipaddress.ip_address(each.laddr.ip.partition("%")[0])
                mapped = getattr(address, "ipv4_mapped", None)
                found.append(
                    {
                        "pid": pid,
                        "name": name,
                        "kind": "udp" if udp else "tcp",
                        "address": each.laddr.ip,
                        "port": each.laddr.port,
                        "loopback": (mapped or address).is_loopback,
                    }
                )
    return found
