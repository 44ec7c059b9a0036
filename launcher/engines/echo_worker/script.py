"""What the echo worker says: harmony messages, as token ids of the byte vocabulary.

The prompt ends in ``<|start|>assistant``, so an answer begins with its channel. A turn is an analysis message
and then either a final message or a call of the first offered tool.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from launcher.engines.echo_worker.arguments import example, tool_arguments
from launcher.engines.echo_worker.prompt import Prompt
from launcher.simmodel import vocabulary as v

__all__ = ["Answer", "Limits", "compose", "limit"]

# Echoing a long prompt whole would make every answer as long as its question.
_LONGEST_ECHO = 400
_FILLING = " The echo worker repeats this sentence to reach the length it was asked for."


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds an answer, in tokens (one token is one byte or one special token)."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    keep_stop: bool = False
    """Whether the answer includes the stop string that ends it."""
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of one choice and why they end."""

    tokens: tuple[int, ...]
    finish_reason: Literal["stop", "length"]


def compose(prompt: Prompt, limits: Limits, choice: int = 0, schema: Any = None) -> Answer:
    """Return the answer to a prompt.

    ``choice`` numbers the answers of one request (``n``); ``schema`` is the JSON schema that guided decoding
    asks the final message to match.
    """
    least = limits.max_tokens if limits.ignore_eos else limits.min_tokens
    said = prompt.last.text[:_LONGEST_ECHO]
    if not prompt.is_chat:
        return limit([*_padded(v.encode(f" [echo] {said}"), least - 1), v.RETURN], limits)
    answers_tool = prompt.last.author.startswith("functions.")
    tool = prompt.tools[0] if prompt.tools and not answers_tool else None
    tokens = [
        *_channel("analysis"),
        *v.encode(_thought(prompt, tool)),
        v.END,
        v.START,
        *v.encode("assistant"),
    ]
    if tool is not None and not limits.ignore_eos:
        tokens += [
            v.CHANNEL,
            *v.encode(f"commentary to=functions.{tool['name']} "),
            v.CONSTRAIN,
            *v.encode("json"),
        ]
        tokens += [v.MESSAGE, *v.encode(_json(tool_arguments(tool, said))), v.CALL]
        return limit(tokens, limits)
    tokens += _channel("final")
    if schema is not None:
        return limit([*tokens, *v.encode(_json(example(schema, said))), v.RETURN], limits)
    source = f"{prompt.last.author} returned" if answers_tool else "You said"
    number = f" (choice {choice + 1})" if choice else ""
    tokens += v.encode(f"[echo]{number} {source}: {said}")
    return limit([*_padded(tokens, least - 1), v.RETURN], limits)


def limit(tokens: Sequence[int], limits: Limits) -> Answer:
    """Cut an answer where the first stop token, stop string or length limit ends it.

    Stop strings count in what a reader sees, special tokens excluded. They are cut off here already: the
    frontend hides them too, but before 1.6 only their last byte where the harmony parser is on.
    """
    text = bytearray()
    places: list[int] = []  # of each byte of the text among the tokens
    stops = [stop.encode() for stop in limits.stop if stop]
    ending = () if limits.ignore_eos else v.EOS_IDS
    for count, token in enumerate(tokens, 1):
        if token < 256:
            text += v.decode_bytes([token])
            places.append(count - 1)
        if count >= limits.min_tokens:
            if token in ending or token in limits.stop_token_ids:
                return Answer(tuple(tokens[:count]), "stop")
            for stop in stops:
                if text.endswith(stop):
                    kept = count if limits.keep_stop else places[-len(stop)]
                    return Answer(tuple(tokens[:kept]), "stop")
        if count >= limits.max_tokens:
            return Answer(tuple(tokens[:count]), "length")
    return Answer(tuple(tokens), "stop")


def _channel(name: str) -> list[int]:
    return [v.CHANNEL, *v.encode(name), v.MESSAGE]


def _thought(prompt: Prompt, tool: dict[str, Any] | None) -> str:
    """Return the reasoning: longer for a higher effort, as a model's would be."""
    plan = f"I will call {tool['name']}." if tool is not None else "I will repeat what was said."
    sentences = [
        plan,
        f"The conversation has {len(prompt.messages)} messages.",
        "No model runs: this text is scripted.",
    ]
    return " ".join(sentences[: {"low": 1, "high": 3}.get(prompt.effort, 2)])


def _padded(tokens: list[int], least: int) -> list[int]:
    filling = v.encode(_FILLING)
    missing = max(0, least - len(tokens))
    return tokens + (filling * (missing // len(filling) + 1))[:missing]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
