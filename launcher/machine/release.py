"""Waits until the GPUs of a process that ended are free again: the driver takes its time after the process is gone."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable

from launcher.machine.gpus import free_mib, gpu_holders, inventory
from launcher.machine.nvml import NvmlUnavailable

BOUND_S = 30.0
LOOK_S = 0.25
STEADY_S = 1.0
"""Free memory that has not grown for so long will not grow any more."""


async def released(
    gpus: Iterable[str], name: str, log: Callable[[str, str], None], *, bound_s: float = BOUND_S
) -> bool:
    """Return when no dead process holds one of these GPUs (CUDA's names) and their free memory grows no more.

    False, with a line in the log, where that is not so after `bound_s` seconds: the start is tried all the same, and
    says itself what it lacks. Without NVML there is nothing to wait for.
    """
    wanted = list(gpus)
    if not wanted:
        return True
    began = time.monotonic()
    try:
        uuids = await asyncio.to_thread(_uuids, wanted)
        held = await _wait(uuids, began + bound_s)
    except NvmlUnavailable:
        return True
    spent = time.monotonic() - began
    if held:
        log(f"{name}: after {spent:.1f} s its GPU is still held by {held}; starting all the same", "warning")
        return False
    if spent > 2 * STEADY_S:
        log(f"{name}: its GPU memory was free after {spent:.1f} s", "info")
    return True


async def _wait(uuids: list[str], until: float) -> str:
    """Empty once all is free, else what still holds a GPU at `until` (monotonic seconds)."""
    free, since = -1, time.monotonic()
    while True:
        now = time.monotonic()
        left, dead = await asyncio.to_thread(_look, uuids)
        if left > free:
            free, since = left, now
        if not dead and now - since >= STEADY_S:
            return ""
        if now >= until:
            return dead or "memory that is still being freed"
        await asyncio.sleep(LOOK_S)


def _uuids(names: list[str]) -> list[str]:
    found = inventory()
    known = {gpu.cuda_name: gpu.uuid for gpu in (*found.gpus, *found.mig_devices)}
    return [known.get(name, name) for name in names]


def _look(uuids: list[str]) -> tuple[int, str]:
    """Free MiB of all together, and the holders that no longer run."""
    free = sum(free_mib(uuid) or 0 for uuid in uuids)
    dead = {
        f"pid {holder.pid}"
        for holders in gpu_holders(uuids).values()
        for holder in holders
        if not os.path.exists(f"/proc/{holder.pid}")
    }
    return free, ", ".join(sorted(dead))
