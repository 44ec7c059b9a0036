"""What one simulated worker is: batch limits, KV capacity, timing table, from the target's own values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launcher.findings import Finding, LauncherError, did_you_mean
from launcher.machine import PRODUCTS
from launcher.plan.model import Role
from launcher.target.schema import Target, Workers

from . import timing

GIB = 1024**3
WEIGHTS_GIB = 64.7
"""gpt-oss-120b in MXFP4; measured on an H200 with vLLM 0.23 (shared/gpu)."""
OVERHEAD_GIB = 4.2
"""Activations, CUDA graphs and context on each GPU; the same measurement (126.0 - 64.7 - 57.1)."""
KV_BYTES = 23069
"""KV cache of one token, bytes, fp8: the same measurement (57.1 GiB hold 2,657,749 tokens). Half of the layers keep a
window of 128 tokens only, which vLLM's hybrid manager makes use of; the draft head's layer is in it."""
DTYPE_FACTOR = {"fp8": 1, "auto": 2, "bfloat16": 2}
TRANSFER_GB_S = 200.0
"""Prefill to decode inside one node, GB/s of one pair: below the 450 of H200's NVLink; nobody has measured it here."""
DEFAULT_SEQS = 1024
"""vLLM's own max_num_seqs for a server on GPUs of this size."""
DEFAULT_BATCHED_TOKENS = 8192
ACCEPT_LENGTH = 2.72
"""Tokens of a step with EAGLE3 and 3 draft tokens: what the page's figures were measured with."""


@dataclass(frozen=True, slots=True)
class SimEngine:
    """One worker, in words of our own; `replay_child` translates them for the simulator that is installed."""

    role: Role
    gpus: int
    """GPUs of one worker."""
    backend: str
    """Scheduling that is simulated: vllm or trtllm."""
    table: str
    block: int
    blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    prefix_caching: bool
    chunked_prefill: bool
    dp: int
    """Schedulers of one worker (attention data parallel)."""
    kv_bytes: int
    host_blocks: int
    """KV blocks in host memory; 0 without offload."""

    def to_json(self, count: int, path: str) -> dict[str, Any]:
        """As `replay_child` takes it; `path` is the file that the timing table goes to."""
        return {
            "role": self.role.value,
            "count": count,
            "backend": self.backend,
            "block": self.block,
            "blocks": self.blocks,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "prefix_caching": self.prefix_caching,
            "chunked_prefill": self.chunked_prefill,
            "dp": self.dp,
            "kv_bytes": self.kv_bytes,
            "transfer_gb_s": TRANSFER_GB_S,
            "host_blocks": self.host_blocks,
            "table": path,
        }


def build(target: Target, role: Role, workers: Workers, native: str, table: str | None) -> SimEngine:
    """The simulated worker of a role. `table`: a timing table asked for by name instead of the target's own."""
    args = {**target.engine.args, **workers.args}
    config = {**target.engine.config, **workers.config}
    trtllm = native == "trtllm"
    data_parallel = workers.tensor_parallel if config.get("enable_attention_dp") else 1
    kv: dict[str, Any] = {}
    for part in (target.engine.config, workers.config):
        kv |= part.get("kv_cache_config", {})
    bytes_per_token = KV_BYTES * DTYPE_FACTOR.get(target.kv.dtype or "auto", 1)
    tokens = _kv_tokens(target, args, kv, workers, bytes_per_token)
    offload = target.kv.offload
    return SimEngine(
        role=role,
        gpus=workers.tensor_parallel,
        backend="trtllm" if trtllm and role is Role.AGGREGATED else "vllm",
        table=table or _table(target, workers, native, bool(data_parallel > 1)),
        block=target.kv.block_size,
        blocks=max(1, tokens // target.kv.block_size // data_parallel),
        max_num_seqs=_whole(args, "max-num-seqs")
        or _whole(args, "max-batch-size")
        or _whole(config, "max_batch_size")
        or DEFAULT_SEQS,
        max_num_batched_tokens=_whole(args, "max-num-batched-tokens")
        or _whole(config, "max_num_tokens")
        or DEFAULT_BATCHED_TOKENS,
        prefix_caching=kv.get("enable_block_reuse", True) is not False
        and args.get("enable-prefix-caching") is not False,
        chunked_prefill=not trtllm and args.get("enable-chunked-prefill") is not False,
        dp=data_parallel,
        kv_bytes=bytes_per_token,
        # Offload connectors break the handshake of NIXL: a split of this target would run without.
        host_blocks=offload.bytes_per_rank // bytes_per_token // target.kv.block_size
        if offload and role is Role.AGGREGATED
        else 0,
    )


def _kv_tokens(
    target: Target, args: dict[str, Any], kv: dict[str, Any], workers: Workers, bytes_per_token: int
) -> int:
    """Tokens that one worker's GPUs hold beside weights and activations."""
    product = PRODUCTS.get(_product(target))
    memory = target.hardware.gpu_memory_gib or (product.memory_mib / 1024 if product is not None else 0.0)
    share = args.get("gpu-memory-utilization")
    width = workers.tensor_parallel
    if isinstance(share, int | float):
        room = memory * share * width - WEIGHTS_GIB - OVERHEAD_GIB * width
    else:
        # TensorRT-LLM gives the KV cache a share of what is left.
        left = memory * width - WEIGHTS_GIB - OVERHEAD_GIB * width
        fraction = kv.get("free_gpu_memory_fraction", args.get("free-gpu-memory-fraction", 0.9))
        room = left * (fraction if isinstance(fraction, int | float) else 0.9)
    return max(0, int(room * GIB / bytes_per_token))


def _product(target: Target) -> str:
    return target.hardware.gpu[0] if target.hardware.gpu else ""


def _table(target: Target, workers: Workers, native: str, attention_dp: bool) -> str:
    """The timing table that is nearest to what the target runs."""
    product = _product(target)
    name = f"{product.lower()}-vllm-tp{workers.tensor_parallel}"
    if target.engine.env.get("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8"):
        name = f"{product.lower()}-trtllm-w4a8-tp{workers.tensor_parallel}"
    if native == "trtllm":
        kind = f"adp{workers.tensor_parallel}" if attention_dp else f"w4a8-tp{workers.tensor_parallel}"
        name = f"{product.lower()}-trtllm-{kind}"
    if target.model.id != "openai/gpt-oss-120b" or target.hardware.shared_gpu or name not in timing.names():
        raise LauncherError(
            Finding(
                code="simulate-no-timing",
                what=f"no timing table for {target.model.id} on {product or 'no GPU'} with {native}, "
                f"{workers.tensor_parallel} GPUs a worker"
                + (", shared" if target.hardware.shared_gpu else ""),
                where=f"target {target.name}",
                why="the simulator would answer with a made-up machine's figures",
                fix=f"--timing with one of: {', '.join(timing.names())}, or an .npz profile of your GPU",
            )
        )
    return name


def known_table(name: str) -> str:
    """The name of a table that exists. Raises LauncherError."""
    if name not in timing.names():
        raise LauncherError(
            Finding(
                code="simulate-timing",
                what=f"there is no timing table {name!r}",
                where="--timing",
                fix=did_you_mean(name, timing.names()),
            )
        )
    return name


def _whole(values: dict[str, Any], name: str) -> int | None:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
