"""Questions that only a working harmony chain answers right, and how to read the answers. Pure.

gpt-oss speaks harmony: reasoning, final text and tool calls come in channels of one token stream, and the frontend
takes them apart. Where it cannot (no vocabulary, no parser), it still answers 200: so the parts are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARKERS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>")
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
        },
    },
}
ASK_TOOL = "What is the weather in Zurich in celsius right now? Use the tool."
VOCABULARY_FIX = (
    "give frontend and workers TIKTOKEN_ENCODINGS_BASE with o200k_base.tiktoken (`launcher download`)"
)
PARSER_FIX = "the workers need parsers.reasoning: gpt_oss and parsers.tool_call: harmony"


@dataclass(slots=True)
class Reply:
    """The first choice of a chat completion, put together from one body or from the chunks of a stream."""

    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, str]] = field(default_factory=list)
    """Tool calls: `id`, `name`, `arguments` (text)."""
    finish_reason: str = ""
    usage: Mapping[str, Any] | None = None
    chunks: int = 0
    """Chunks with a choice; 0 for a body."""

    def add(self, chunk: Any) -> None:
        """Take one chunk of a stream."""
        if isinstance(chunk, dict) and isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        choice = _choice(chunk)
        if choice is None:
            return
        self.chunks += 1
        self._take(choice.get("delta"))
        self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        self.content += _text(message.get("content"))
        self.reasoning += _text(message.get("reasoning_content") or message.get("reasoning"))
        for call in message.get("tool_calls") or ():
            if not isinstance(call, dict):
                continue
            index = call.get("index")
            index = index if isinstance(index, int) and 0 <= index <= len(self.calls) else len(self.calls)
            if index == len(self.calls):
                self.calls.append({"id": "", "name": "", "arguments": ""})
            function = call.get("function") or {}
            self.calls[index]["id"] += _text(call.get("id"))
            self.calls[index]["name"] += _text(function.get("name"))
            self.calls[index]["arguments"] += _text(function.get("arguments"))


def reply(body: Any) -> Reply | None:
    """The reply in a body that was not streamed; None where it is no chat completion."""
    choice = _choice(body)
    if choice is None or not isinstance(choice.get("message"), dict):
        return None
    read = Reply(finish_reason=choice.get("finish_reason") or "", usage=body.get("usage"))
    read._take(choice["message"])
    return read


def empty(read: Reply) -> tuple[str, str]:
    """What is wrong with a reply that should say something, and what to do; empty where nothing is."""
    if read.content or read.reasoning or read.calls:
        return "", ""
    return f"an empty message (finish_reason {read.finish_reason or 'missing'})", VOCABULARY_FIX


def not_split(read: Reply) -> tuple[str, str]:
    """What is wrong with the split into reasoning and final text, and what to do."""
    fault = empty(read)
    if fault[0]:
        return fault
    leaked = [marker for marker in MARKERS if marker in read.content or marker in read.reasoning]
    if leaked:
        return f"harmony markers in the text ({leaked[0]}): no parser took them out", PARSER_FIX
    if not read.reasoning:
        return "no reasoning_content beside the content", PARSER_FIX
    if not read.content:
        return f"reasoning without final text (finish_reason {read.finish_reason})", "ask for more max_tokens"
    return "", ""


def no_call(read: Reply) -> tuple[str, str]:
    """What is wrong with a reply that should call TOOL, and what to do."""
    fault = empty(read)
    if fault[0]:
        return fault
    if not read.calls:
        said = read.content or read.reasoning
        return f"no tool call (finish_reason {read.finish_reason}): {said[:80]!r}", PARSER_FIX
    if read.finish_reason != "tool_calls":
        return f"finish_reason is {read.finish_reason!r}, not 'tool_calls'", PARSER_FIX
    call = read.calls[0]
    if call["name"] != TOOL["function"]["name"]:
        return f"a call of {call['name']!r}, which was not offered", PARSER_FIX
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return f"the call's arguments are no JSON: {call['arguments'][:80]!r}", PARSER_FIX
    return misfit(arguments, TOOL["function"]["parameters"]), PARSER_FIX


def misfit(value: Any, schema: Mapping[str, Any], path: str = "the arguments") -> str:
    """What makes a value break a JSON schema, as far as TOOL's schema goes: objects of strings, enumerations."""
    if schema.get("type") == "object":
        if not isinstance(value, dict):
            return f"{path} are no object"
        properties: Mapping[str, Any] = schema.get("properties", {})
        lacking = [name for name in schema.get("required", ()) if name not in value]
        if lacking:
            return f"{path} lack {lacking[0]!r}"
        faults = (misfit(value[name], properties[name], name) for name in value if name in properties)
        return next((fault for fault in faults if fault), "")
    if schema.get("type") == "string" and not isinstance(value, str):
        return f"{path} is {value!r}, not a string"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path} is {value!r}, not one of {', '.join(map(repr, schema['enum']))}"
    return ""


def bad_usage(usage: Any, most: int | None = None) -> str:
    """What is wrong with usage figures; `most`: the completion tokens that were allowed."""
    if not isinstance(usage, Mapping):
        return "no usage figures"
    numbers: Sequence[Any] = [
        usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    ]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return f"usage is {dict(usage)}"
    prompt, completion, total = numbers
    if prompt == 0 or total != prompt + completion:
        return f"usage does not add up: {prompt} + {completion} != {total}"
    if most is not None and completion > most:
        return f"{completion} completion tokens where {most} were allowed"
    return ""


def _choice(body: Any) -> dict[str, Any] | None:
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
