"""Reads a prompt's token ids back into messages and tools.

A worker sees tokens, not the request. The built-in chat template writes one JSON object per offered tool
(``scripts/make_simmodel.py``), so the tools can be read from the developer message again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launcher.simmodel import vocabulary as v

__all__ = ["Message", "Prompt", "read"]

_TOOLS_HEADING = "# Tools\n\n## functions\n\n"
_EFFORT_LABEL = "Reasoning: "


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the prompt: its author (``user``, ``assistant``, ``functions.NAME``, …) and text."""

    author: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the prompt says, as far as the tokens show it."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    """The offered functions: ``{"name", "description", "parameters"}``.

    Dynamo leaves them out of the prompt where ``tool_choice`` is ``none``."""
    effort: str
    """``low``, ``medium`` or ``high``."""
    is_chat: bool
    """False for ``/v1/completions``, whose prompt has no framing; ``messages`` then holds its text."""

    @property
    def last(self) -> Message:
        """The message to answer."""
        return self.messages[-1] if self.messages else Message("user", "")


def read(tokens: Sequence[int]) -> Prompt:
    """Return what a prompt says."""
    if v.START not in tokens:
        return Prompt((Message("user", v.decode(list(tokens))),), (), "medium", is_chat=False)
    messages = _messages(tokens)
    system = next((message.text for message in messages if message.author == "system"), "")
    effort = system.partition(_EFFORT_LABEL)[2].partition("\n")[0] or "medium"
    return Prompt(tuple(messages), tuple(_tools(messages)), effort, is_chat=True)


def _messages(tokens: Sequence[int]) -> list[Message]:
    result: list[Message] = []
    header: list[int] = []
    body: list[int] | None = None
    for token in (*tokens, v.START):
        if token == v.START or token in (v.END, v.CALL, v.RETURN):
            if body is not None:
                author = v.decode(header).split(" ")[0].partition(v.SPECIAL_TOKENS[v.CHANNEL])[0]
                result.append(Message(author, v.decode(body)))
            header, body = [], None
        elif token == v.MESSAGE and body is None:
            body = []
        else:
            (header if body is None else body).append(token)
    return result


def _tools(messages: Sequence[Message]) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for message in messages:
        # Only the first developer message carries tools: later ones are what users wrote.
        if message.author == "developer":
            _, heading, listing = message.text.rpartition(_TOOLS_HEADING)
            for line in listing.splitlines() if heading else ():
                try:
                    tool = json.loads(line)
                except ValueError:
                    continue
                if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                    tools.append(tool)
            break
    return tools
