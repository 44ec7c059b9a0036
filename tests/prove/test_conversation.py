"""Reading answers: what a working harmony chain says, and what a broken one says instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.prove.conversation import TOOL, Reply, bad_usage, empty, misfit, no_call, not_split, reply

GOOD = {"city": "Zurich", "unit": "celsius"}


def body(finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish_reason}], "usage": {}}


def read(finish_reason: str = "stop", **message: Any) -> Reply:
    found = reply(body(finish_reason, **message))
    assert found is not None
    return found


def called(arguments: str, name: str = "get_weather", finish_reason: str = "tool_calls") -> Reply:
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return read(finish_reason, content=None, tool_calls=[call])


def test_reasoning_and_content_apart() -> None:
    assert not_split(read(content="51", reasoning_content="17 * 3")) == ("", "")


@pytest.mark.parametrize(
    ("message", "fault", "fix"),
    [
        # Measured with ai-dynamo 1.3.1 where the vocabulary is missing: 200 and nothing in it.
        ({"content": None, "reasoning_content": None}, "an empty message", "TIKTOKEN_ENCODINGS_BASE"),
        ({"content": "51"}, "no reasoning_content", "parsers.reasoning"),
        ({"content": None, "reasoning_content": "hm"}, "without final text", "max_tokens"),
        (
            {"content": "<|channel|>final<|message|>51", "reasoning_content": "x"},
            "harmony markers",
            "parsers",
        ),
    ],
)
def test_a_broken_split(message: dict[str, Any], fault: str, fix: str) -> None:
    found = not_split(read(**message))
    assert fault in found[0]
    assert fix in found[1]


def test_an_answer_cut_at_its_length_has_begun_to_speak() -> None:
    assert empty(read("length", content=None, reasoning_content="hm")) == ("", "")
    assert "an empty message (finish_reason length)" in empty(read("length", content=None))[0]


def test_a_tool_call() -> None:
    assert no_call(called(json.dumps(GOOD)))[0] == ""


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (called('{"city": "Zurich"'), "are no JSON"),
        (called("[]"), "are no object"),
        (called('{"city": "Zurich"}'), "lack 'unit'"),
        (
            called('{"city": "Zurich", "unit": "kelvin"}'),
            "unit is 'kelvin', not one of 'celsius', 'fahrenheit'",
        ),
        (called('{"city": 3, "unit": "celsius"}'), "city is 3, not a string"),
        (called(json.dumps(GOOD), name="other"), "was not offered"),
        (called(json.dumps(GOOD), finish_reason="stop"), "finish_reason is 'stop'"),
        (
            read(content="It is sunny.", reasoning_content="x"),
            "no tool call (finish_reason stop): 'It is sunny.'",
        ),
        (read(content=None), "an empty message"),
    ],
)
def test_no_tool_call(found: Reply, fault: str) -> None:
    assert fault in no_call(found)[0]


def test_more_arguments_than_the_schema_knows_are_fine() -> None:
    assert misfit({**GOOD, "day": "today"}, TOOL["function"]["parameters"]) == ""


def test_a_stream_is_put_together() -> None:
    found = Reply()
    for delta in (
        {"role": "assistant", "content": ""},
        {"reasoning_content": "I "},
        {"reasoning_content": "call."},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "get_weather", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Zurich",'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ' "unit": "celsius"}'}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "get_weather", "arguments": "{}"}}]},
    ):
        found.add({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    found.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    found.add({"choices": [], "usage": {"total_tokens": 3}})
    assert no_call(found)[0] == ""
    assert (found.reasoning, len(found.calls), found.chunks) == ("I call.", 2, 8)
    assert found.usage == {"total_tokens": 3}


@pytest.mark.parametrize("odd", [None, "text", [], {}, {"choices": []}, {"choices": [3]}, {"choices": [{}]}])
def test_what_is_no_answer(odd: Any) -> None:
    assert reply(odd) is None
    found = Reply()
    found.add(odd)
    assert not found.content


@pytest.mark.parametrize(
    ("usage", "fault"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, ""),
        (
            {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
            "5 completion tokens where 4 were allowed",
        ),
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 9}, "does not add up"),
        ({"prompt_tokens": 0, "completion_tokens": 4, "total_tokens": 4}, "does not add up"),
        ({"prompt_tokens": 3, "total_tokens": 7}, "usage is"),
        (None, "no usage figures"),
    ],
)
def test_usage(usage: Any, fault: str) -> None:
    assert fault in bad_usage(usage, 4)
    assert bool(bad_usage(usage, 4)) == bool(fault)
