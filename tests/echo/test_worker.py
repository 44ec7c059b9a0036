"""The request handler and its simulated cache, without Dynamo."""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any

import pytest

from launcher.engines.echo_worker.args import Options, parse
from launcher.engines.echo_worker.kv_cache import PrefixCache, block_hashes
from launcher.engines.echo_worker.worker import PROBE_KEY, EchoWorker, RequestError
from launcher.simmodel import MODEL_NAME, MODEL_PATH
from launcher.simmodel import vocabulary as v

PROMPT = [
    v.START,
    *v.encode("user"),
    v.MESSAGE,
    *v.encode("hello there"),
    v.END,
    v.START,
    *v.encode("assistant"),
]


class Going:
    """A request that is stopped after a number of looks."""

    def __init__(self, looks: int = 10**9) -> None:
        self.looks = looks

    def id(self) -> str:
        return "r"

    def is_stopped(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def is_killed(self) -> bool:
        return False


class Events:
    """Records what was published."""

    def __init__(self) -> None:
        self.stored: list[tuple[list[int], list[int], list[int], int | None]] = []
        self.removed: list[int] = []

    def publish_stored(
        self,
        token_ids: list[int],
        num_block_tokens: list[int],
        block_hashes: list[int],
        parent_hash: int | None = None,
    ) -> None:
        self.stored.append((token_ids, num_block_tokens, block_hashes, parent_hash))

    def publish_removed(self, block_hashes: list[int]) -> None:
        self.removed += block_hashes


def options(*argv: str) -> Options:
    return parse(["--tokens-per-second", "0", "--block-size", "4", *argv])


def answer(worker: EchoWorker, request: dict[str, Any], context: Going | None = None) -> list[dict[str, Any]]:
    async def collect() -> list[dict[str, Any]]:
        return [chunk async for chunk in worker.generate(request, context or Going())]

    return asyncio.run(collect())


def text(chunks: list[dict[str, Any]], index: int = 0) -> str:
    return v.decode([token for chunk in chunks if chunk["index"] == index for token in chunk["token_ids"]])


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYN_COMPONENT", raising=False)
    given = parse([])
    assert (given.model_path, given.model_name) == (str(MODEL_PATH), MODEL_NAME)
    assert (given.mode, given.component, given.endpoint) == ("agg", "backend", "generate")
    assert parse(["--disaggregation-mode", "prefill"]).component == "prefill"
    assert given.kv_events
    assert not parse(["--disaggregation-mode", "decode"]).kv_events
    assert not parse(["--no-kv-events"]).kv_events


@pytest.mark.parametrize(
    "argv",
    [["--block-size", "0"], ["--tokens-per-second", "-1"], ["--tokens-per-second", "nan"], ["--nonsense"]],
)
def test_wrong_arguments(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parse(argv)
    assert error.value.code == 2


def test_answer() -> None:
    chunks = answer(EchoWorker(options()), {"token_ids": PROMPT})
    assert text(chunks).endswith("[echo] You said: hello there<|return|>")
    assert [chunk.get("finish_reason") for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["finish_reason"] == "stop"
    assert chunks[-1]["completion_usage"] == {
        "prompt_tokens": len(PROMPT),
        "completion_tokens": len(chunks),
        "total_tokens": len(PROMPT) + len(chunks),
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_packed_token_ids() -> None:
    packed = struct.pack(f"<{len(PROMPT)}i", *PROMPT)
    assert text(answer(EchoWorker(options()), {"token_ids": packed})).endswith("hello there<|return|>")


def test_choices() -> None:
    chunks = answer(EchoWorker(options()), {"token_ids": PROMPT, "sampling_options": {"n": 2}})
    assert [chunk["index"] for chunk in chunks if chunk.get("finish_reason")] == [0, 1]
    assert "(choice 2)" in text(chunks, 1)


def test_limits_of_the_request() -> None:
    conditions = {"max_tokens": 5, "stop": None, "min_tokens": None, "ignore_eos": None}
    chunks = answer(EchoWorker(options()), {"token_ids": PROMPT, "stop_conditions": conditions})
    assert (len(chunks), chunks[-1]["finish_reason"]) == (5, "length")


def test_stop_string_at_once() -> None:
    request = {"token_ids": v.encode("once"), "stop_conditions": {"stop": [" ["]}}
    [chunk] = answer(EchoWorker(options()), request)
    assert (chunk["token_ids"], chunk["finish_reason"]) == ([], "stop")


def test_context_length() -> None:
    chunks = answer(EchoWorker(options("--context-length", str(len(PROMPT) + 3))), {"token_ids": PROMPT})
    assert (len(chunks), chunks[-1]["finish_reason"]) == (3, "length")
    with pytest.raises(RequestError, match="context length"):
        answer(EchoWorker(options("--context-length", str(len(PROMPT)))), {"token_ids": PROMPT})


def test_cancelled() -> None:
    chunks = answer(EchoWorker(options()), {"token_ids": PROMPT}, Going(looks=7))
    assert len(chunks) == 8
    assert (chunks[-1]["token_ids"], chunks[-1]["finish_reason"]) == ([], "cancelled")


def test_pace() -> None:
    worker = EchoWorker(parse(["--tokens-per-second", "200"]))
    began = time.monotonic()
    answer(worker, {"token_ids": PROMPT, "stop_conditions": {"max_tokens": 20}})
    assert 0.1 <= time.monotonic() - began < 2


def test_events_and_cached_tokens() -> None:
    events = Events()
    worker = EchoWorker(options(), events)
    blocks = len(PROMPT) // 4
    answer(worker, {"token_ids": PROMPT})
    [(tokens, sizes, hashes, parent)] = events.stored
    assert (tokens, sizes, parent) == (PROMPT[: blocks * 4], [4] * blocks, None)
    again = answer(worker, {"token_ids": PROMPT})
    assert again[-1]["completion_usage"]["prompt_tokens_details"] == {"cached_tokens": blocks * 4}
    assert len(events.stored) == 1
    answer(worker, {"token_ids": [*PROMPT, *v.encode("more than one block")]})
    assert events.stored[1][3] == hashes[-1]


def test_probe_leaves_no_trace() -> None:
    events = Events()
    worker = EchoWorker(options("--disaggregation-mode", "prefill"), events)
    chunks = answer(worker, {"token_ids": [1] * 100, PROBE_KEY: True})
    assert (len(chunks), events.stored) == (1, [])


def test_prefill_hands_over_to_decode() -> None:
    prefill = EchoWorker(options("--disaggregation-mode", "prefill"), Events())
    answer(prefill, {"token_ids": PROMPT})
    [chunk] = answer(prefill, {"token_ids": PROMPT})
    handover = chunk["disaggregated_params"]
    assert handover["kv_transfer_params"]["do_remote_prefill"] is True
    decode = EchoWorker(options("--disaggregation-mode", "decode"))
    details = chunk["completion_usage"]["prompt_tokens_details"]
    result = {"disaggregated_params": handover, "prompt_tokens_details": details}
    request = {"token_ids": PROMPT, "prefill_result": result}
    chunks = answer(decode, request)
    assert "You said: hello there" in text(chunks)
    cached = chunks[-1]["completion_usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == len(PROMPT) // 4 * 4


def test_decode_alone_answers_too(caplog: pytest.LogCaptureFixture) -> None:
    decode = EchoWorker(options("--disaggregation-mode", "decode"))
    assert "You said: hello there" in text(answer(decode, {"token_ids": PROMPT}))
    assert "without a prefill worker's result" in caplog.text


def test_hashes_depend_on_what_came_before() -> None:
    one, two = block_hashes([1, 2, 3, 4, 5], 2), block_hashes([9, 2, 3, 4], 2)
    assert len(one) == len(two) == 2
    assert not set(one) & set(two)
    assert all(-(2**63) <= value < 2**63 for value in one + two)


def test_cache_evicts_the_ends_of_old_prompts_first() -> None:
    cache = PrefixCache(block_size=1, capacity=4)
    first = cache.store([1, 2, 3])
    second = cache.store([7, 8])
    assert second.removed == first.stored[-1:]
    assert cache.store([1, 2, 3]).cached_tokens == 2
    assert len(cache) == 4


def test_prompt_longer_than_the_cache() -> None:
    cache = PrefixCache(block_size=2, capacity=2)
    change = cache.store(list(range(10)))
    assert (len(change.stored), change.removed, change.stored_tokens) == (2, (), (0, 1, 2, 3))
    assert cache.store(list(range(10))).cached_tokens == 4
