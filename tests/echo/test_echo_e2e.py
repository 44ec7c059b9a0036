"""Echo workers behind a real Dynamo frontend with the real harmony parser.

One frontend serves four models: an aggregated one, a prefill/decode pair, one that publishes no KV events, and
one of Dynamo's mocker on the same built-in model folder.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.simmodel import HUB_CACHE, MODEL_PATH

_spec = importlib.util.spec_from_file_location("echo_stack", Path(__file__).with_name("stack.py"))
assert _spec is not None
assert _spec.loader is not None
stack_module = importlib.util.module_from_spec(_spec)
sys.modules["echo_stack"] = stack_module
_spec.loader.exec_module(stack_module)
Stack, wait, MODEL = stack_module.Stack, stack_module.wait, stack_module.MODEL

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(stack_module.python() is None, reason="needs ai-dynamo"),
    pytest.mark.skipif(
        not (stack_module.VOCABULARY / "o200k_base.tiktoken").is_file(), reason="needs the o200k vocabulary"
    ),
]

PAIR, SILENT, MOCKER = "sim/disaggregated", "sim/silent", "sim/mocker"
STORED, OK = "dynamo_component_kv_cache_events_applied", ('event_type="stored"', 'status="ok"')
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a <city> & more",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
            "required": ["city", "unit"],
        },
    },
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    stack = Stack(tmp_path_factory.mktemp("echo"))
    try:
        stack.worker("agg")
        stack.worker(
            "prefill", "--disaggregation-mode=prefill", f"--model-name={PAIR}", "--component=pair-prefill"
        )
        stack.worker(
            "decode", "--disaggregation-mode=decode", f"--model-name={PAIR}", "--component=pair-decode"
        )
        stack.worker("silent", "--no-kv-events", f"--model-name={SILENT}", "--component=silent")
        stack.start(
            "mocker",
            "dynamo.mocker",
            f"--model-path={MODEL_PATH}",
            f"--model-name={MOCKER}",
            "--endpoint=dyn://echo-test.mocker.generate",
            "--block-size=16",
            "--speedup-ratio=10",
        )
        for name in (MODEL, PAIR, SILENT, MOCKER):
            stack.wait_for_model(name)
        yield stack
    finally:
        stack.stop()


def only(answer: dict[str, Any]) -> dict[str, Any]:
    [choice] = answer["choices"]
    return dict(choice)


@pytest.mark.parametrize("model", [MODEL, PAIR])
def test_chat(stack: Any, model: str) -> None:
    answer = stack.chat("grüezi 🦄", model=model)
    choice = only(answer)
    assert choice["message"]["content"] == "[echo] You said: grüezi 🦄"
    assert choice["message"]["reasoning_content"].startswith("I will repeat what was said.")
    assert choice["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("model", [MODEL, PAIR])
@pytest.mark.parametrize(
    "tool_choice", ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_tool_call(stack: Any, model: str, tool_choice: Any) -> None:
    choice = only(stack.chat("Bern", model=model, tools=[WEATHER], tool_choice=tool_choice))
    assert choice["finish_reason"] == "tool_calls"
    [call] = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Bern", "unit": "C"}
    assert choice["message"]["reasoning_content"].startswith("I will call get_weather.")


def test_mocker_says_something(stack: Any) -> None:
    """Random tokens have a text in the built-in tokenizer, and no harmony parser needs a vocabulary."""
    message = only(stack.chat(model=MOCKER, max_tokens=20))["message"]
    assert len(message["content"].split()) == 20


def test_nothing_is_written_into_the_model_folder(stack: Any) -> None:
    stack.chat()
    assert sorted(path.name for path in HUB_CACHE.rglob("*") if path.is_file()) == [
        "config.json",
        "generation_config.json",
        "main",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_tool_choice_none(stack: Any) -> None:
    choice = only(stack.chat("Bern", tools=[WEATHER], tool_choice="none"))
    assert choice["finish_reason"] == "stop"
    assert not choice["message"].get("tool_calls")


def test_tool_result(stack: Any) -> None:
    first = only(stack.chat("Bern", tools=[WEATHER]))["message"]
    call = first["tool_calls"][0]
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "Bern"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
    ]
    choice = only(stack.chat(messages=messages, tools=[WEATHER]))
    assert choice["message"]["content"] == "[echo] functions.get_weather returned: sunny"


def test_json_schema(stack: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert json.loads(only(stack.chat(response_format=response_format))["message"]["content"]) == {"a": 1}


def test_stream(stack: Any) -> None:
    chunks = list(stack.stream("hello there", stream_options={"include_usage": True}))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    content = "".join(delta.get("content") or "" for delta in deltas)
    reasoning = "".join(delta.get("reasoning_content") or "" for delta in deltas)
    assert content == "[echo] You said: hello there"
    assert reasoning == "I will repeat what was said. The conversation has 2 messages."
    assert len(deltas) > 20
    assert [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]] == [
        "stop"
    ]
    assert chunks[-1]["usage"]["completion_tokens"] > 20


def test_stream_tool_call(stack: Any) -> None:
    chunks = list(stack.stream("Bern", tools=[WEATHER]))
    calls = [
        call for chunk in chunks for c in chunk["choices"] for call in c["delta"].get("tool_calls") or []
    ]
    assert "".join(call["function"].get("name") or "" for call in calls) == "get_weather"
    arguments = "".join(call["function"].get("arguments") or "" for call in calls)
    assert json.loads(arguments) == {"city": "Bern", "unit": "C"}
    reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert reasons[-1] == "tool_calls"


def test_max_tokens(stack: Any) -> None:
    answer = stack.chat(max_tokens=24)
    assert only(answer)["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 24


def test_stop(stack: Any) -> None:
    choice = only(stack.chat("one two three", stop=["two"]))
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == "[echo] You said: one "


def test_choices(stack: Any) -> None:
    answer = stack.chat(n=2)
    choices = {choice["index"]: choice for choice in answer["choices"]}
    assert sorted(choices) == [0, 1]
    assert choices[0]["message"]["content"] == "[echo] You said: hello"
    assert [choice["finish_reason"] for choice in choices.values()] == ["stop", "stop"]
    # Frontends before 1.6 keep one harmony parser per request, and it ends with the first choice.
    if "completion_tokens_details" in answer["usage"]:
        assert choices[1]["message"]["content"] == "[echo] (choice 2) You said: hello"


def test_completion(stack: Any) -> None:
    body = {"model": MODEL, "prompt": "once upon", "max_tokens": 50}
    status, answer = stack.post("/v1/completions", body)
    assert (status, answer["choices"][0]["text"]) == (200, " [echo] once upon")


def test_reasoning_effort(stack: Any) -> None:
    low, high = (
        only(stack.chat(reasoning_effort=e))["message"]["reasoning_content"] for e in ("low", "high")
    )
    assert len(low) < len(high)


def test_disconnect_cancels(stack: Any) -> None:
    stream = stack.stream(max_tokens=5000, ignore_eos=True)
    for _ in range(5):
        next(stream)
    stream.close()
    wait(lambda: "cancelled after" in stack.log("agg"), 10, stack.log("agg")[-2000:])


@pytest.mark.parametrize("model", [MODEL, PAIR])
def test_kv_events_fill_the_router(stack: Any, model: str) -> None:
    question = f"{model}: " + "a long question " * 20
    before = stack.metric(STORED, *OK)
    first = stack.chat(question, model=model)["usage"]
    wait(lambda: stack.metric(STORED, *OK) > before, 10, "no stored event applied")
    second = stack.chat(question, model=model)["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] < 200
    assert second["prompt_tokens_details"]["cached_tokens"] == second["prompt_tokens"] // 16 * 16


def test_no_events_where_they_are_off(stack: Any) -> None:
    # The frontend has one such counter, labelled with the component it met first: only differences mean anything.
    before = stack.metric(STORED, *OK)
    stack.chat("a long question " * 20, model=SILENT)
    time.sleep(1)
    assert stack.metric(STORED, *OK) == before


@pytest.mark.parametrize("worker", ["agg", "prefill", "decode", "silent"])
def test_health(stack: Any, worker: str) -> None:
    assert stack.get("/health", stack.system_ports[worker])[0] == 200


def test_sigterm_finishes_what_runs(stack: Any) -> None:
    """The last test of the module: it ends the aggregated worker while an answer streams."""
    chunks: list[dict[str, Any]] = []
    reader = threading.Thread(target=lambda: chunks.extend(stack.stream(max_tokens=1000, ignore_eos=True)))
    reader.start()
    time.sleep(0.5)
    process = stack.processes["agg"]
    process.send_signal(signal.SIGTERM)
    reader.join(20)
    assert [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]] == [
        "length"
    ]
    assert process.wait(15) == 0
