"""The request handler: what one echo worker does with a request, chunk by chunk.

Chunks have the shape of dynamo.vllm's: ``{"token_ids", "index"}``, and ``finish_reason`` and
``completion_usage`` at each choice's end.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from launcher.engines.echo_worker.args import Options
from launcher.engines.echo_worker.kv_cache import PrefixCache
from launcher.engines.echo_worker.prompt import read
from launcher.engines.echo_worker.script import Answer, Limits, compose
from launcher.simmodel import vocabulary as v

__all__ = ["PROBE_KEY", "Cancellation", "EchoWorker", "Publisher", "RequestError"]

logger = logging.getLogger(__name__)

PROBE_KEY = "_HEALTH_CHECK"
"""Marks the request by which Dynamo tests an idle worker (``dynamo.health_check.HEALTH_CHECK_KEY``)."""

Chunk = dict[str, Any]


class Cancellation(Protocol):
    """The part of ``dynamo.runtime.Context`` that is used."""

    def id(self) -> str | None:
        """Return the request's id."""

    def is_stopped(self) -> bool:
        """Tell whether the client went away or the frontend has enough."""

    def is_killed(self) -> bool:
        """Tell whether the request was killed."""


class Publisher(Protocol):
    """The part of ``dynamo.llm.KvEventPublisher`` that is used."""

    def publish_stored(
        self,
        token_ids: list[int],
        num_block_tokens: list[int],
        block_hashes: list[int],
        parent_hash: int | None = ...,
    ) -> None:
        """Announce blocks that are now held."""

    def publish_removed(self, block_hashes: list[int]) -> None:
        """Announce blocks that are held no longer."""


class RequestError(ValueError):
    """The request cannot be answered, and the client should change it."""


class EchoWorker:
    """Answers each request from the script; a prefill worker only stores the prompt and hands over."""

    def __init__(self, options: Options, publisher: Publisher | None = None) -> None:
        """Prepare a worker that holds nothing yet; without a publisher it announces nothing."""
        self.options = options
        self._publisher = publisher
        self._cache = PrefixCache(options.block_size, options.kv_blocks)

    async def generate(self, request: Mapping[str, Any], context: Cancellation) -> AsyncIterator[Chunk]:
        """Answer one request."""
        tokens = _token_ids(request["token_ids"])
        if request.get(PROBE_KEY):
            yield _last([v.RETURN], 0, "stop", _usage(len(tokens), 1, 0))
            return
        if len(tokens) >= self.options.context_length:
            raise RequestError(
                f"the prompt has {len(tokens)} tokens, which leaves no room for an answer in the context "
                f"length of {self.options.context_length}"
            )
        cached = self._store(tokens)
        if self.options.mode == "prefill":
            yield self._handover(len(tokens), cached)
            return
        if self.options.mode == "decode":
            handed_over = request.get("prefill_result")
            if handed_over:
                cached = _cached_by_prefill(handed_over)
            else:
                # As dynamo.vllm: it computes the prompt itself. Frontends do this while no prefill worker is known.
                logger.warning("request %s came without a prefill worker's result", context.id())
        async for chunk in self._paced(self._answers(request, tokens), context, len(tokens), cached):
            yield chunk

    def _answers(self, request: Mapping[str, Any], tokens: list[int]) -> list[Answer]:
        prompt = read(tokens)
        limits = _limits(request, self.options.context_length - len(tokens))
        sampling = request.get("sampling_options") or {}
        schema = (sampling.get("guided_decoding") or {}).get("json")
        return [compose(prompt, limits, choice, schema) for choice in range(sampling.get("n") or 1)]

    async def _paced(
        self, answers: list[Answer], context: Cancellation, prompt_tokens: int, cached: int
    ) -> AsyncIterator[Chunk]:
        """Yield the answers token by token.

        One choice after the other, although an engine decodes them together: frontends before 1.6 keep one
        harmony parser per request, and where choices alternate not even the first comes out right.
        """
        began, sent, total = time.monotonic(), 0, sum(len(answer.tokens) for answer in answers)
        rate = self.options.tokens_per_second
        for index, answer in enumerate(answers):
            for place, token in enumerate(answer.tokens, 1):
                # Due times count from the start, so that late wake-ups do not add up.
                due = began + (sent + 1) / rate if rate else 0.0
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if context.is_stopped() or context.is_killed():
                    logger.info("request %s cancelled after %d of %d tokens", context.id(), sent, total)
                    yield _last([], index, "cancelled", _usage(prompt_tokens, sent, cached))
                    return
                sent += 1
                if place < len(answer.tokens):
                    yield {"token_ids": [token], "index": index}
            # The last token travels with the reason; there is none where a stop string came first.
            last = list(answer.tokens[-1:])
            yield _last(last, index, answer.finish_reason, _usage(prompt_tokens, sent, cached))

    def _handover(self, prompt_tokens: int, cached: int) -> Chunk:
        """Return a prefill worker's only chunk, shaped as dynamo.vllm's with its NIXL connector."""
        chunk = _last([v.CHANNEL], 0, "length", _usage(prompt_tokens, 1, cached))
        blocks = -(-prompt_tokens // self.options.block_size)
        chunk["disaggregated_params"] = {
            "kv_transfer_params": {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_engine_id": "echo",
                "remote_block_ids": list(range(blocks)),
            }
        }
        return chunk

    def _store(self, tokens: list[int]) -> int:
        """Hold the prompt's blocks, publish the change, and return how many tokens were held before."""
        change = self._cache.store(tokens)
        if self._publisher is not None:
            if change.stored:
                self._publisher.publish_stored(
                    list(change.stored_tokens),
                    [self.options.block_size] * len(change.stored),
                    list(change.stored),
                    change.parent,
                )
            if change.removed:
                self._publisher.publish_removed(list(change.removed))
        return change.cached_tokens


def _token_ids(value: Any) -> list[int]:
    """Return token ids; with DYN_TOKEN_IDS_AS_BYTES (1.6) they come packed as little-endian 32-bit numbers."""
    if isinstance(value, bytes | bytearray | memoryview):
        packed = bytes(value)
        return list(struct.unpack(f"<{len(packed) // 4}i", packed))
    return list(value)


def _limits(request: Mapping[str, Any], room: int) -> Limits:
    """Return what bounds the answer; ``room`` is what the context length leaves."""
    conditions = request.get("stop_conditions") or {}
    sampling = request.get("sampling_options") or {}
    return Limits(
        max_tokens=min(conditions.get("max_tokens") or room, room),
        min_tokens=conditions.get("min_tokens") or 0,
        ignore_eos=bool(conditions.get("ignore_eos")),
        stop=tuple(conditions.get("stop") or ()),
        keep_stop=bool(sampling.get("include_stop_str_in_output")),
        stop_token_ids=tuple(conditions.get("stop_token_ids") or ()),
    )


def _cached_by_prefill(prefill_result: Mapping[str, Any]) -> int:
    """Return the cached tokens that the prefill worker reported; the frontend passes its usage on."""
    details = prefill_result.get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


def _usage(prompt_tokens: int, completion_tokens: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _last(tokens: list[int], index: int, reason: str, usage: dict[str, Any]) -> Chunk:
    return {"token_ids": tokens, "index": index, "finish_reason": reason, "completion_usage": usage}
