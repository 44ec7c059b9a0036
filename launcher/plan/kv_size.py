"""How many tokens of KV a vLLM worker of gpt-oss should have room for: what is left of the GPU after the weights.

The formula gives 2,659,000 where vLLM 0.23.0 said 2,657,749 (120b, one H200, fp8, context 131072, 57.1 GiB for KV).
"""

from __future__ import annotations

import re
from typing import Any

from launcher.plan.model import Role
from launcher.target.schema import Target, Workers

GIB = 2**30
WEIGHTS_GIB = {"gpt-oss-120b": 64.7, "gpt-oss-20b": 13.0}
"""GiB of weights on one GPU; 120b measured on an H200 (vLLM 0.23.0), 20b the size of its checkpoint."""
LAYERS = {"gpt-oss-120b": 36, "gpt-oss-20b": 24}
"""Every second layer attends to a window only (config.json, `layer_types`)."""
HEADS, HEAD_DIM, WINDOW = 8, 64, 128
"""KV heads, their width, and tokens of the sliding window: the same in both sizes."""
OVERHEAD_GIB = 5.0
"""Activations, CUDA graphs and the context: 4.6 measured."""
FLOOR = 0.8
"""Share of the expected tokens below which something is wrong: without the hybrid KV manager it is 0.62."""


def floor_tokens(target: Target, role: Role, workers: Workers) -> int | None:
    """Tokens of KV that one worker of the role must have; None where nothing is known to expect."""
    expected = expected_tokens(target, role, workers)
    return int(expected * FLOOR) if expected is not None else None


def expected_tokens(target: Target, role: Role, workers: Workers) -> float | None:
    """Tokens that vLLM should report as `GPU KV cache size`."""
    size = next((size for size in WEIGHTS_GIB if size in target.model.id.lower()), None)
    args = {**target.engine.args, **workers.args}
    room = _room_bytes(target, workers, args, WEIGHTS_GIB[size]) if size is not None else None
    longest = args.get("max-model-len", target.model.max_context)
    if (
        size is None
        or room is None
        or room <= 0
        or not isinstance(longest, int)
        or target.engine.kind != "vllm"
    ):
        return None
    layer = (
        2 * HEADS * HEAD_DIM * (1 if str(target.kv.dtype).startswith("fp8") else 2) / workers.tensor_parallel
    )
    batched = args.get("max-num-batched-tokens", 8192)
    window = min(longest, WINDOW - 1 + (batched if isinstance(batched, int) else 8192))
    if args.get("disable-hybrid-kv-cache-manager") is True:
        window = longest
    half = LAYERS[size] / 2
    return room / (half * layer * (longest + window)) * longest


def _room_bytes(target: Target, workers: Workers, args: dict[str, Any], weights_gib: float) -> float | None:
    """Bytes of one GPU that are left for KV."""
    fixed = args.get("kv-cache-memory-bytes")
    if fixed is not None:
        return _bytes(fixed)
    gpu, share = target.hardware.gpu_memory_gib, args.get("gpu-memory-utilization", 0.9)
    if gpu is None or isinstance(share, bool) or not isinstance(share, int | float):
        return None
    return (gpu * share - weights_gib / workers.tensor_parallel - OVERHEAD_GIB) * GIB


def _bytes(value: Any) -> float | None:
    """A size as vLLM reads it: a small letter is a power of 1000, a capital one of 1024."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", str(value))
    if found is None:
        return None
    base = 1024 if found[2].isupper() else 1000
    return float(found[1]) * float(base ** " kmgt".index(found[2].lower() or " "))
