"""The smoke test: what a client will do first, done against any OpenAI-compatible URL, one proof each.

Each check is a function of one `Smoke` and one line in `CHECKS`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from launcher.prove import chat
from launcher.prove.conversation import PARSER_FIX, bad_usage
from launcher.prove.frontend import Answer, Frontend
from launcher.prove.kv_routing import KvRouting
from launcher.prove.proof import Proof, failed, passed, skipped

UNSPOKEN = "not provable on the mocker: its answers are random text"
PERHAPS_SIMULATED = (
    "or the engine is simulated and answers random text, which the API does not tell: with --admin URL smoke asks "
    "the launcher, and skips this"
)
UNREADY = "it is not ready, or it is draining: `launcher status` says which"


@dataclass(frozen=True, slots=True)
class Smoke:
    """What is tested."""

    frontend: Frontend
    speaks: bool = True
    """The workers answer in harmony (real engines and the echo); the mocker's text is random."""
    told: bool = True
    """A launcher said which engine it is; else `speaks` is a guess."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Request port of a worker to its name, where a launcher told it."""
    block_size: int | None = None
    """Tokens of a KV block as planned, where a launcher told it."""


Check = Callable[[Smoke], Awaitable[Proof]]


async def models(smoke: Smoke) -> Proof:
    """The model is listed."""
    answer = await smoke.frontend.get("/v1/models")
    data = answer.body.get("data") if answer.ok and isinstance(answer.body, dict) else None
    if not isinstance(data, list):
        return failed("models", str(answer), "is this the API's URL?")
    names = [str(entry.get("id")) for entry in data if isinstance(entry, dict)]
    if smoke.frontend.model not in names:
        # Dynamo forgets a model whose last worker has gone.
        fix = "" if names else "no worker serves it now: `launcher status` says why"
        return failed("models", f"{smoke.frontend.model} is not among {', '.join(names) or 'no models'}", fix)
    return passed("models", ", ".join(names))


async def completion(smoke: Smoke) -> Proof:
    """A chat completion says something."""
    return await chat.completion(smoke.frontend, "chat", speaks=smoke.speaks)


async def streaming(smoke: Smoke) -> Proof:
    """The same as a stream."""
    return await chat.streaming(smoke.frontend, speaks=smoke.speaks)


async def reasoning(smoke: Smoke) -> Proof:
    """Reasoning and final text come apart."""
    return await chat.reasoning(smoke.frontend) if smoke.speaks else skipped("reasoning", UNSPOKEN)


async def tool_call(smoke: Smoke) -> Proof:
    """A tool call."""
    return await chat.tool_call(smoke.frontend) if smoke.speaks else skipped("tool call", UNSPOKEN)


async def tool_call_streamed(smoke: Smoke) -> Proof:
    """A tool call in pieces."""
    name = "tool call, streamed"
    return (
        await chat.tool_call(smoke.frontend, name, streamed=True) if smoke.speaks else skipped(name, UNSPOKEN)
    )


async def completions(smoke: Smoke) -> Proof:
    """The older endpoint without a chat template."""
    name, most = "completions", 16
    request = {"model": smoke.frontend.model, "prompt": "Once upon a time", "max_tokens": most}
    answer = await smoke.frontend.post("/v1/completions", request, chat.REQUEST_S)
    choices = answer.body.get("choices") if answer.ok and isinstance(answer.body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0].get("text"), str):
        return failed(name, str(answer))
    fault = bad_usage(answer.body.get("usage"), most)
    return failed(name, fault) if fault else passed(name, f"{choices[0]['text'][:40]!r}")


async def responses(smoke: Smoke) -> Proof:
    """`/v1/responses`, where the release offers it."""
    name, most = "responses", 256
    request = {"model": smoke.frontend.model, "input": "Say hello.", "max_output_tokens": most}
    answer = await smoke.frontend.post("/v1/responses", request, chat.REQUEST_S)
    if answer.status in (404, 405, 501):
        return skipped(name, f"not offered (HTTP {answer.status})")
    if not answer.ok or not isinstance(answer.body, dict):
        return failed(name, str(answer))
    state = answer.body.get("status")
    if state not in ("completed", "incomplete"):
        return failed(name, f"status is {state!r}")
    text = "".join(
        part.get("text") or ""
        for item in answer.body.get("output") or ()
        if item.get("type") == "message"
        for part in item.get("content") or ()
        if part.get("type") == "output_text"
    )
    if not text and smoke.speaks and state == "completed":
        return failed(name, "no output_text")
    return passed(name, f"{state}, {len(text)} characters")


async def errors(smoke: Smoke) -> Proof:
    """Bad requests get 4xx and a JSON body with a message, and the server lives on."""
    model = smoke.frontend.model
    hello = [{"role": "user", "content": "x"}]
    cases: dict[str, tuple[Any, tuple[int, ...]]] = {
        "no JSON": (b"{nope", (400, 422)),
        "no messages": ({"model": model}, (400, 422)),
        "max_tokens as a word": ({"model": model, "messages": hello, "max_tokens": "many"}, (400, 422)),
        "temperature 99": ({"model": model, "messages": hello, "temperature": 99}, (400, 422)),
        "an unknown model": ({"model": "no/such-model", "messages": hello}, (404, 400)),
    }
    shapes = set()
    for what, (request, expected) in cases.items():
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        answer = await smoke.frontend.post(chat.CHAT, data, chat.REQUEST_S)
        shape = _error_shape(answer)
        if answer.status not in expected or not shape:
            return failed("errors", f"{what}: {answer}, expected {expected[0]} with a message")
        shapes.add(shape)
    return passed(
        "errors", f"{len(cases)} bad requests, each 4xx with a message ({', '.join(sorted(shapes))})"
    )


async def usage(smoke: Smoke) -> Proof:
    """The usage figures."""
    return await chat.usage(smoke.frontend)


async def kv_routing(smoke: Smoke) -> Proof:
    """Prompts with a known prefix go where it is cached."""
    found, why = await smoke.frontend.instances()
    if not found:
        return skipped("KV routing", f"no workers to be seen on /health: {why or 'none listed'}")
    prefill = [instance for instance in found if instance.component == "prefill"]
    workers = {
        instance.number: smoke.names.get(instance.port or 0, f"{instance.component} {instance.number:x}")
        for instance in prefill or found
    }
    test = KvRouting(smoke.frontend, workers, disaggregated=bool(prefill), block_size=smoke.block_size)
    page = await smoke.frontend.metrics()
    if page is None or page.total("dynamo_component_router_kv_hit_rate_count") is None:
        return skipped("KV routing", "the frontend has no KV router's figures on /metrics")
    return await test.run()


CHECKS: dict[str, Check] = {
    "models": models,
    "chat": completion,
    "streaming": streaming,
    "reasoning": reasoning,
    "tool-call": tool_call,
    "tool-call-streamed": tool_call_streamed,
    "completions": completions,
    "responses": responses,
    "errors": errors,
    "usage": usage,
    "kv-routing": kv_routing,
}
"""In the order in which they run; the keys are what `--skip` and `--only` take."""


async def run(smoke: Smoke, chosen: Collection[str] = tuple(CHECKS)) -> AsyncIterator[Proof]:
    """The results, one after the other. Once nobody answers, the rest is skipped."""
    gone = ""
    for name, check in CHECKS.items():
        if name not in chosen:
            continue
        if gone:
            yield skipped(name, gone)
            continue
        began = time.monotonic()
        try:
            proof = await check(smoke)
        except (AttributeError, KeyError, TypeError) as error:
            # An answer of a shape that no check foresaw; the others go on.
            proof = failed(name, f"an answer of unknown shape: {type(error).__name__}: {error}")
        yield replace(proof, fix=_advice(proof, smoke), seconds=time.monotonic() - began)
        if not proof.ok and (await smoke.frontend.get("/v1/models")).status == 0:
            gone = "nobody answers"
        await asyncio.sleep(0)


def _advice(proof: Proof, smoke: Smoke) -> str:
    """What to do about a failure, as far as the check alone could not know."""
    if proof.ok:
        return proof.fix
    if "HTTP 503" in proof.text:  # as every check shows such an answer
        return UNREADY
    return f"{proof.fix}; {PERHAPS_SIMULATED}" if proof.fix == PARSER_FIX and not smoke.told else proof.fix


def _error_shape(answer: Answer) -> str:
    """`openai` for `{"error": {"message"}}`, `flat` for Dynamo's `{"message", "type", "code"}`; empty for neither."""
    if not isinstance(answer.body, dict):
        return ""
    inner = answer.body.get("error")
    if isinstance(inner, dict) and inner.get("message"):
        return "openai"
    return "flat" if answer.body.get("message") else ""
