"""How TensorRT-LLM's prefill workers hand KV to decode workers, and what both sides must have in common."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import is_gpt_oss, round_up
from launcher.checks.target.trtllm.view import View, by_role, shown, views
from launcher.findings import Finding, Severity
from launcher.plan.model import Role
from launcher.target.resolve import Resolved

BACKEND = ("cache_transceiver_config", "backend")
BUFFER = ("cache_transceiver_config", "max_tokens_in_buffer")
BLOCK = ("kv_cache_config", "tokens_per_block")


def _pair(resolved: Resolved) -> tuple[View, View] | None:
    found = by_role(resolved)
    if Role.PREFILL in found and Role.DECODE in found:
        return found[Role.PREFILL], found[Role.DECODE]
    return None


def backend(resolved: Resolved) -> Iterator[Finding]:
    """Both roles need a cache transceiver, of one kind; without `backend` it is off, and decode waits for ever."""
    pair = _pair(resolved)
    if pair is None:
        return
    prefill, decode = pair
    for view in pair:
        if view.given(*BACKEND) is None and resolved.target.kv.transfer is not None:
            yield Finding(
                code="trt-transceiver",
                what=f"cache_transceiver_config.backend of {view.role} workers is not set",
                where=view.origin(*BACKEND),
                why="the transceiver is off without it, and no KV reaches decode",
                fix="kv.transfer.connector: ucx",
            )
    a, b = prefill.given(*BACKEND), decode.given(*BACKEND)
    if a is not None and b is not None and a != b:
        yield Finding(
            code="trt-transceiver",
            what=f"cache_transceiver_config.backend is {a} on prefill and {b} on decode",
            where=decode.origin(*BACKEND),
            why="the two sides would not find each other",
            fix=f"one for both: kv.transfer.connector: {str(a).lower()}, and none under workers",
        )


def buffer(resolved: Resolved) -> Iterator[Finding]:
    """`max_tokens_in_buffer` must hold the longest prompt and be a whole number of KV blocks.

    The transceiver registers a buffer of that many tokens. A longer prompt is refused at transfer, after its prefill
    was computed; a size that is no multiple of `tokens_per_block` fails at start in some releases and cuts the last
    block in others.
    """
    seen: set[int] = set()
    longest = _longest_input(resolved)
    for view in views(resolved):
        size, block = view.count(*BUFFER), view.count(*BLOCK)
        if (
            view.role is Role.AGGREGATED
            or view.given(*BUFFER) is None
            or not size
            or not block
            or size in seen
        ):
            continue
        seen.add(size)
        right = round_up(max(size, longest), block)
        faults = []
        if size % block:
            faults.append(f"no multiple of tokens_per_block {block}")
        if size < longest:
            faults.append(f"less than the longest input, {longest} tokens")
        if faults:
            yield Finding(
                code="trt-buffer",
                what=f"max_tokens_in_buffer is {size}: " + " and ".join(faults),
                where=view.origin(*BUFFER),
                why="prompts that do not fit fail at transfer, after their prefill was computed",
                fix=f"--set kv.transfer.max_tokens_in_buffer={right}",
                link="dynamo#5523, dynamo#4327, TRT-LLM#13506",
            )


def _longest_input(resolved: Resolved) -> int:
    """Tokens of the longest prompt that prefill takes: its limit less one for the first answer token."""
    prefill = by_role(resolved).get(Role.PREFILL)
    limit = prefill.count("max_seq_len") if prefill is not None else None
    if limit:
        return limit - 1
    return resolved.target.workload.isl if resolved.target.workload else 0


def same_layout(resolved: Resolved) -> Iterator[Finding]:
    """KV goes over as it is: its number format and block size must be the same on both sides."""
    pair = _pair(resolved)
    if pair is None:
        return
    prefill, decode = pair
    for path in (("kv_cache_config", "dtype"), BLOCK):
        a, b = prefill.value(*path), decode.value(*path)
        if a != b:
            yield Finding(
                code="trt-kv-layout",
                what=f"{'.'.join(path)} is {a} on prefill and {b} on decode",
                where=decode.origin(*path),
                why="decode would read the blocks of prefill as something else",
                fix=f"--set {shown(Role.DECODE, *path)}={a}"
                if path == BLOCK
                else "kv.dtype once, and none under workers",
            )


def routing(resolved: Resolved) -> Iterator[Finding]:
    """KV-aware routing over TensorRT-LLM needs block reuse, KV events and the router's own block size.

    Without block reuse nothing stays cached and nothing is published. Dynamo passes the router's block size as
    `--kv-block-size`; the engine cuts blocks of `tokens_per_block`, and nothing compares the two.
    """
    target = resolved.target
    if target.router.mode != "kv":
        return
    for view in views(resolved):
        if view.role is Role.DECODE:
            continue
        block = view.count(*BLOCK)
        if not view.value("kv_cache_config", "enable_block_reuse"):
            yield Finding(
                code="trt-kv-routing",
                what=f"router.mode is kv, and {view.role} workers have enable_block_reuse false",
                where=view.origin("kv_cache_config", "enable_block_reuse"),
                why="nothing stays cached, so there is nothing to route by",
                fix="--set engine.config.kv_cache_config.enable_block_reuse=true, or router.mode=round-robin",
                link="dynamo#4249",
            )
        if block is not None and block != target.kv.block_size:
            yield Finding(
                code="trt-kv-routing",
                what=f"kv.block_size is {target.kv.block_size}, {view.role} workers have tokens_per_block {block}",
                where=view.origin(*BLOCK) if view.given(*BLOCK) else resolved.origin("kv", "block_size"),
                why="block hashes would differ, and KV-aware routing would match nothing",
                fix=f"--set engine.config.kv_cache_config.tokens_per_block={target.kv.block_size}, "
                f"or kv.block_size={block}",
                link="dynamo#1233",
            )


def attention(resolved: Resolved) -> Iterator[Finding]:
    """gpt-oss's attention sinks and sliding windows exist in TensorRT-LLM's own attention backend only."""
    if not is_gpt_oss(resolved.target):
        return
    for view in views(resolved):
        value = view.given("attn_backend")
        if value is not None and value != "TRTLLM":
            yield Finding(
                code="trt-attention",
                what=f"attn_backend of {view.role} workers is {value}",
                where=view.origin("attn_backend"),
                why="gpt-oss needs attention sinks, which only TRTLLM has",
                fix="attn_backend: TRTLLM, or remove it",
            )


def limits(resolved: Resolved) -> Iterator[Finding]:
    """A prompt that decode would take and prefill refuses fails halfway; the public recipe has 11000 and 9000."""
    pair = _pair(resolved)
    if pair is None:
        return
    prefill, decode = (view.count("max_seq_len") for view in pair)
    if (
        prefill
        and decode
        and decode > prefill
        and (resolved.target.workload is None or _spare(resolved, decode))
    ):
        yield Finding(
            code="trt-prompt-gap",
            what=f"max_seq_len is {prefill} on prefill and {decode} on decode",
            severity=Severity.WARNING,
            where=pair[0].origin("max_seq_len"),
            why=f"prompts of {prefill} to {decode - 1} tokens pass the one limit and fail at prefill",
            fix=f"prefill needs no more than the longest prompt; refuse longer ones in front, or "
            f"--set {shown(Role.PREFILL, 'max_seq_len')}={decode} "
            f"kv.transfer.max_tokens_in_buffer={round_up(decode - 1, 32)}",
        )


def _spare(resolved: Resolved, decode: int) -> bool:
    load = resolved.target.workload
    return load is None or decode > load.isl
