"""Proofs by a conversation: a completion, the reasoning split, a tool call; whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from launcher.prove.conversation import ASK_TOOL, TOOL, Reply, bad_usage, empty, no_call, not_split, reply
from launcher.prove.frontend import Frontend, StreamError
from launcher.prove.proof import Proof, failed, passed

CHAT = "/v1/chat/completions"
REQUEST_S = 60.0
"""For one request: the first may wait for kernels that are compiled on first use."""
ATTEMPTS = 3
"""A sampled model may answer a clear request for a tool in words once."""


def body(frontend: Frontend, text: str, max_tokens: int, **more: Any) -> dict[str, Any]:
    """A chat request with one message of the user."""
    return {
        "model": frontend.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
        **more,
    }


async def completion(frontend: Frontend, name: str = "completion", *, speaks: bool = True) -> Proof:
    """One real answer with at least one token. `speaks`: the workers answer in harmony, so it must say something."""
    most = 64 if speaks else 16
    answer = await frontend.post(CHAT, body(frontend, "Say that you are ready.", most), REQUEST_S)
    if not answer.ok:
        return failed(name, str(answer))
    read = reply(answer.body)
    if read is None:
        return failed(name, f"no chat completion: {answer}")
    usage = read.usage if isinstance(read.usage, Mapping) else {}
    tokens = usage.get("completion_tokens")
    if not isinstance(tokens, int) or tokens < 1:
        return failed(name, f"an answer without a token: {answer}")
    fault, fix = empty(read) if speaks else ("", "")
    if fault:
        return failed(name, fault, fix)
    return passed(name, f"{tokens} tokens, finish_reason {read.finish_reason}", completion_tokens=tokens)


async def usage(frontend: Frontend, name: str = "usage") -> Proof:
    """The usage figures add up, and max_tokens is honoured."""
    most = 12
    answer = await frontend.post(CHAT, body(frontend, "Count from one to a hundred.", most), REQUEST_S)
    if not answer.ok or not isinstance(answer.body, dict):
        return failed(name, str(answer))
    found = answer.body.get("usage")
    fault = bad_usage(found, most)
    if fault:
        return failed(name, fault)
    assert isinstance(found, dict)
    prompt, completion, total = (found[f"{part}_tokens"] for part in ("prompt", "completion", "total"))
    return passed(name, f"{prompt} + {completion} = {total} tokens, at most {most} asked for", **_flat(found))


async def reasoning(frontend: Frontend, name: str = "reasoning") -> Proof:
    """Reasoning and final text come apart."""
    request = body(frontend, "What is 17 times 3?", 512)
    answer = await frontend.post(CHAT, request, REQUEST_S)
    read = reply(answer.body)
    if not answer.ok or read is None:
        return failed(name, str(answer))
    fault, fix = not_split(read)
    if fault:
        return failed(name, fault, fix)
    return passed(name, f"{len(read.reasoning)} characters of reasoning, {len(read.content)} of content")


async def streaming(frontend: Frontend, name: str = "streaming", *, speaks: bool = True) -> Proof:
    """A stream of several chunks that ends with a reason, the usage and `[DONE]`."""
    request = body(frontend, "Say hello.", 128, stream=True, stream_options={"include_usage": True})
    read, done, fault = await _stream(frontend, request)
    if not fault and not done:
        fault = "the stream ended without [DONE]"
    if not fault and not read.finish_reason:
        fault = "no chunk has a finish_reason"
    fault = fault or bad_usage(read.usage, 128)
    fix = ""
    if not fault and speaks:
        fault, fix = empty(read)
        if not fault and read.chunks < 2:
            fault = "everything came in one chunk"
    if fault:
        return failed(name, fault, fix)
    return passed(name, f"{read.chunks} chunks, finish_reason {read.finish_reason}, usage at the end")


async def tool_call(frontend: Frontend, name: str = "tool call", *, streamed: bool = False) -> Proof:
    """The offered tool is called: finish_reason tool_calls, arguments that fit its schema."""
    fault = fix = ""
    for attempt in range(ATTEMPTS):
        # Greedy first; what a model would not do then, it may do with another seed.
        request = body(
            frontend, ASK_TOOL, 512, tools=[TOOL], tool_choice="auto", temperature=attempt * 0.5, seed=attempt
        )
        if streamed:
            read, _, fault = await _stream(frontend, request | {"stream": True})
        else:
            answer = await frontend.post(CHAT, request, REQUEST_S)
            found = reply(answer.body)
            read, fault = (found, "") if answer.ok and found is not None else (Reply(), str(answer))
        if fault:
            return failed(name, fault)
        fault, fix = no_call(read)
        if not fault:
            call = read.calls[0]
            return passed(
                name, f"{call['name']}({' '.join(call['arguments'].split())})", attempts=attempt + 1
            )
    return failed(name, fault, fix)


async def _stream(frontend: Frontend, request: Mapping[str, Any]) -> tuple[Reply, bool, str]:
    """The whole stream, whether `[DONE]` came, and what went wrong."""
    read = Reply()
    done = False
    try:
        async for data in frontend.stream(CHAT, request, REQUEST_S):
            if data == "[DONE]":
                done = True
                continue
            chunk = json.loads(data)
            if isinstance(chunk, dict) and "error" in chunk:
                return read, done, f"an error inside the stream: {str(chunk['error'])[:160]}"
            read.add(chunk)
    except StreamError as error:
        return read, done, str(error)
    except ValueError:
        return read, done, "a chunk that is no JSON"
    return read, done, ""


def _flat(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if isinstance(value, int)}
