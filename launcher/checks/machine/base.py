"""Questions about a plan that several checks of the machine ask."""

from __future__ import annotations

from collections.abc import Iterable

from launcher.checks.base import Check
from launcher.machine import Gpu, Machine
from launcher.plan.model import Plan, Process, Role
from launcher.target.schema import Target

GIB = 1024**3
MIB_PER_GIB = 1024

__all__ = [
    "GIB",
    "MIB_PER_GIB",
    "Check",
    "exchanges_kv",
    "flag",
    "gib",
    "gpu_names",
    "gpu_workers",
    "listed",
    "used_gpus",
]


def gpu_names(plan: Plan) -> tuple[str, ...]:
    """The GPUs that the plan's processes compute on, each once, as CUDA names them."""
    return tuple(dict.fromkeys(name for process in plan.processes for name in process.gpus))


def used_gpus(plan: Plan, machine: Machine) -> tuple[Gpu, ...]:
    """Those of them that this machine has. A plan for a machine with too few names GPUs that are not here."""
    found = (machine.gpu(name) for name in gpu_names(plan))
    return tuple(gpu for gpu in found if gpu is not None)


def gpu_workers(plan: Plan) -> tuple[Process, ...]:
    """The workers that need a GPU: none of a simulated plan."""
    return () if plan.simulated else tuple(process for process in plan.workers if process.gpus)


def exchanges_kv(target: Target, plan: Plan) -> bool:
    """Whether workers of this plan hand KV to each other, or to workers elsewhere, on real GPUs."""
    roles = {process.role for process in plan.workers}
    return not plan.simulated and target.kv.transfer is not None and bool(roles & {Role.PREFILL, Role.DECODE})


def flag(process: Process, name: str) -> str | None:
    """The value of a command-line flag, in either form; the last one counts. None where it is not given."""
    value = None
    for word, following in zip(process.argv, (*process.argv[1:], ""), strict=True):
        if word == name:
            value = following
        elif word.startswith(name + "="):
            value = word.partition("=")[2]
    return value


def gib(count: float) -> str:
    """Bytes as GiB for a person: `64 GiB`, `0.06 GiB`; the little in `4 MiB` or `64 KiB`."""
    value = count / GIB
    if value < 0.01:
        return f"{count / 1024**2:.0f} MiB" if count >= 1024**2 else f"{count / 1024:.0f} KiB"
    return f"{value:.0f} GiB" if value >= 10 else f"{value:.2g} GiB"


def listed(names: Iterable[str], most: int = 4) -> str:
    """The names in a row, the rest as a count."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
