"""Prompts read back, answers composed and cut."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from launcher.engines.echo_worker.prompt import Message, Prompt, read
from launcher.engines.echo_worker.script import Answer, Limits, compose, limit
from launcher.simmodel import vocabulary as v

TOOL = {"name": "look", "parameters": {"properties": {"q": {"type": "string"}}, "required": ["q"]}}
MANY = Limits(max_tokens=10_000)


def framed(text: str) -> list[int]:
    """Encode text in which special tokens are written out, as the frontend's tokenizer does."""
    tokens: list[int] = []
    while text:
        at, name = min(
            ((text.find(s), s) for s in v.SPECIAL_TOKENS.values() if s in text), default=(len(text), "")
        )
        tokens += v.encode(text[:at])
        if name:
            tokens.append(next(token for token, s in v.SPECIAL_TOKENS.items() if s == name))
        text = text[at + len(name) :]
    return tokens


def chat(*messages: Message, tools: tuple[Mapping[str, object], ...] = (), effort: str = "medium") -> Prompt:
    given = tuple(dict(tool) for tool in tools)
    return Prompt(messages or (Message("user", "hello"),), given, effort, is_chat=True)


def said(answer: Answer) -> str:
    return v.decode(list(answer.tokens))


def test_read() -> None:
    prompt = read(
        framed(
            "<|start|>system<|message|>Hi\n\nReasoning: high\n\nmore<|end|>"
            f"<|start|>developer<|message|># Instructions\n\nx\n\n# Tools\n\n## functions\n\n{json.dumps(TOOL)}<|end|>"
            "<|start|>user<|message|>what?<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}<|call|>"
            "<|start|>functions.look to=assistant<|channel|>commentary<|message|>seen 🦄<|end|>"
            "<|start|>assistant"
        )
    )
    assert prompt.is_chat
    assert prompt.effort == "high"
    assert prompt.tools == (TOOL,)
    assert [m.author for m in prompt.messages] == [
        "system",
        "developer",
        "user",
        "assistant",
        "functions.look",
    ]
    assert prompt.last == Message("functions.look", "seen 🦄")


def test_read_takes_no_tools_from_users() -> None:
    assert (
        read(framed(f"<|start|>user<|message|># Tools\n\n## functions\n\n{json.dumps(TOOL)}<|end|>")).tools
        == ()
    )


def test_read_broken_tool_lines() -> None:
    text = '<|start|>developer<|message|># Tools\n\n## functions\n\nnot json\n[1]\n{"a": 1}<|end|>'
    assert read(framed(text)).tools == ()


def test_read_plain() -> None:
    prompt = read(v.encode("once upon"))
    assert (prompt.is_chat, prompt.last.text) == (False, "once upon")


def test_final() -> None:
    assert said(compose(chat(), MANY)) == (
        "<|channel|>analysis<|message|>I will repeat what was said. The conversation has 1 messages.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>[echo] You said: hello<|return|>"
    )


def test_effort_lengthens_the_reasoning() -> None:
    lengths = [len(compose(chat(effort=effort), MANY).tokens) for effort in ("low", "medium", "high")]
    assert lengths == sorted(set(lengths))


def test_choices_differ() -> None:
    assert "(choice 3) You said" in said(compose(chat(), MANY, choice=2))


def test_tool_call() -> None:
    answer = compose(chat(tools=(TOOL, {"name": "second"})), MANY)
    assert answer.finish_reason == "stop"
    assert said(answer).endswith(
        "<|end|><|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
        '{"q": "hello"}<|call|>'
    )


def test_tool_result_is_answered() -> None:
    prompt = chat(Message("user", "what?"), Message("functions.look", "42"), tools=(TOOL,))
    assert said(compose(prompt, MANY)).endswith("<|message|>[echo] functions.look returned: 42<|return|>")


def test_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert said(compose(chat(), MANY, schema=schema)).endswith('final<|message|>{"a": 1}<|return|>')


def test_completion() -> None:
    prompt = Prompt((Message("user", "once upon"),), (), "medium", is_chat=False)
    assert said(compose(prompt, MANY)) == " [echo] once upon<|return|>"


def test_long_prompts_are_not_repeated_whole() -> None:
    assert len(compose(chat(Message("user", "x" * 100_000)), MANY).tokens) < 1000


@pytest.mark.parametrize("most", [1, 10, 100])
def test_max_tokens(most: int) -> None:
    answer = compose(chat(), Limits(max_tokens=most))
    assert (len(answer.tokens), answer.finish_reason) == (most, "length")


def test_ends_exactly_at_max_tokens() -> None:
    full = compose(chat(), MANY)
    answer = compose(chat(), Limits(max_tokens=len(full.tokens)))
    assert answer == full


@pytest.mark.parametrize("tools", [(), (TOOL,)])
def test_ignore_eos_fills(tools: tuple[Mapping[str, object], ...]) -> None:
    answer = compose(chat(tools=tools), Limits(max_tokens=2000, ignore_eos=True))
    assert (len(answer.tokens), answer.finish_reason) == (2000, "length")


def test_min_tokens() -> None:
    answer = compose(chat(), Limits(max_tokens=10_000, min_tokens=500))
    assert (len(answer.tokens), answer.finish_reason, answer.tokens[-1]) == (500, "stop", v.RETURN)


@pytest.mark.parametrize(("keep", "left"), [(False, "a"), (True, "ab<|end|>cX")])
def test_stop_string(keep: bool, left: str) -> None:
    tokens = [*v.encode("ab"), v.END, *v.encode("cXYd")]
    answer = limit(tokens, Limits(max_tokens=99, stop=("bcX", "zz"), keep_stop=keep))
    assert (said(answer), answer.finish_reason) == (left, "stop")


def test_stop_string_at_once() -> None:
    assert limit(v.encode("ab"), Limits(max_tokens=99, stop=("a",))) == Answer((), "stop")


def test_stop_string_not_before_min_tokens() -> None:
    answer = limit(v.encode("aXbX"), Limits(max_tokens=99, min_tokens=3, stop=("X", "")))
    assert said(answer) == "aXb"


def test_stop_in_several_bytes() -> None:
    assert said(limit(v.encode("a🦄b"), Limits(max_tokens=99, stop=("🦄",)))) == "a"


def test_stop_token() -> None:
    assert said(limit(v.encode("abc"), Limits(max_tokens=99, stop_token_ids=tuple(v.encode("b"))))) == "ab"
