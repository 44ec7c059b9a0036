"""The longest requests that a target takes, and the GPUs that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from launcher.plan.model import Role
from launcher.target.schema import Target

FLAGS = ("max-model-len", "max-seq-len", "context-length")


def context_limit(target: Target) -> int:
    """Tokens of the longest input: the least that any role's engine takes, at most what the model was built for.

    TensorRT-LLM's disaggregated roles have limits of their own (`max_seq_len`); prefill's is the one that inputs meet.
    """
    limits = [target.model.max_context]
    for role, workers in target.workers.items():
        if role is Role.DECODE and target.workers.prefill is not None and workers.config.get("max_seq_len"):
            continue
        merged: dict[str, Any] = {**target.engine.args, **workers.args}
        limits += _numbers(merged, FLAGS)
        limits += _numbers({**target.engine.config, **workers.config}, ("max_seq_len",))
    return min(limits)


def gpus(target: Target) -> int:
    """GPUs that the target's workers compute on; at least 1, so that per-GPU figures of a simulation exist."""
    if target.hardware.shared_gpu:
        return max(1, target.hardware.gpus)
    return max(1, sum(workers.count * workers.tensor_parallel for _, workers in target.workers.items()))


def _numbers(values: Mapping[str, Any], names: Iterable[str]) -> list[int]:
    found = []
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found.append(value)
    return found
