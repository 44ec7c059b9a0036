"""Which worker gets which GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launcher.plan.model import Role
from launcher.target.schema import Target


@dataclass(frozen=True, slots=True)
class Assignment:
    """The GPUs of one worker, as CUDA names them."""

    own: tuple[str, ...]
    visible: tuple[str, ...]


def needed(target: Target) -> int:
    """GPUs that the target's workers take together."""
    if target.hardware.shared_gpu:
        return max((workers.tensor_parallel for _, workers in target.workers.items()), default=0)
    return sum(workers.count * workers.tensor_parallel for _, workers in target.workers.items())


def assign(target: Target, names: Sequence[str]) -> dict[tuple[Role, int], Assignment]:
    """Contiguous GPUs for each worker, in the plan's order; `names` must hold at least `needed(target)`.

    Workers that exchange KV over NIXL see their own GPUs first and then all the others of the deployment: CUDA IPC
    reaches only a peer's memory on a device that the process can see.
    """
    pool = tuple(names[: needed(target)])
    exchanging = target.kv.transfer is not None and target.kv.transfer.connector == "nixl"
    result: dict[tuple[Role, int], Assignment] = {}
    start = 0
    for role, workers in target.workers.items():
        for index in range(workers.count):
            if target.hardware.shared_gpu:
                start = 0
            own = pool[start : start + workers.tensor_parallel]
            start += workers.tensor_parallel
            others = tuple(name for name in pool if name not in own) if exchanging else ()
            result[role, index] = Assignment(own, own + others)
    return result
