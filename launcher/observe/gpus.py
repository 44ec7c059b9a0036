"""GPU memory while serving: looked at in a thread, and only where a driver is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.machine.gpus import Inventory, inventory
from launcher.machine.nvml import driver_present

FRESH_S = 2.0
"""Between looks; one costs some 10 ms of a thread."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The memory of one GPU, in MiB."""

    index: int
    uuid: str
    name: str
    used_mib: int
    total_mib: int

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            "used_mib": self.used_mib,
            "total_mib": self.total_mib,
        }


def in_use(found: Inventory) -> tuple[GpuUse, ...]:
    """The GPUs of an inventory as their memory is used."""
    return tuple(
        GpuUse(gpu.index, gpu.uuid, gpu.name, gpu.memory_mib - gpu.memory_free_mib, gpu.memory_mib)
        for gpu in found.gpus
    )


class GpuMemory:
    """Remembers the last look; empty on a machine without a driver."""

    def __init__(
        self, look: Callable[[], Inventory] = inventory, *, root: Path = Path("/"), fresh_s: float = FRESH_S
    ) -> None:
        self.last: tuple[GpuUse, ...] = ()
        self._look = look
        self._here = driver_present(root)
        self._fresh_s = fresh_s
        self._at = float("-inf")
        self._one = asyncio.Lock()

    async def refresh(self) -> tuple[GpuUse, ...]:
        """The memory now, at most two seconds old. A driver that hangs keeps the caller waiting, nobody else."""
        async with self._one:
            if self._here and time.monotonic() - self._at >= self._fresh_s:
                self.last = in_use(await asyncio.to_thread(self._look))
                self._at = time.monotonic()
            return self.last
