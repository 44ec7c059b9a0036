"""Manifests as YAML text that never changes without a reason: fixed key order, no line folding, safe quoting."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

WIDTH = 110
"""Columns of a comment line."""
COMMAND = "Made by:"
"""Starts a line that stays whole, to be copied."""

NUMBER = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|0[xob][0-9a-fA-F_]+")
"""Also a number for YAML 1.2, which PyYAML does not know: `1e3`, `0o17`."""
AMBIGUOUS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", ""})
"""Plain words that one YAML reader or another takes for something else than text (YAML 1.1, go-yaml)."""


class _Dumper(yaml.SafeDumper):
    """Without aliases: two equal values are written twice, as a person would."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None
    if value.lower() in AMBIGUOUS or NUMBER.fullmatch(value):
        style = "'"
    elif "\n" in value:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


def _wrapped(comment: str) -> list[str]:
    """Lines of a comment; what starts a line (a list's indent) also starts those that continue it."""
    if comment.startswith(COMMAND):
        # A value given to --set may hold line breaks: what follows one must stay a comment.
        return comment.splitlines()
    indent = comment[: len(comment) - len(comment.lstrip())]
    return textwrap.wrap(
        comment, WIDTH, subsequent_indent=indent + "  " * bool(indent), break_on_hyphens=False
    )


def emit(documents: Sequence[Mapping[str, Any]], comments: Sequence[str]) -> str:
    """The documents as one YAML stream under a head of comment lines."""
    head = "".join(f"# {line}\n" for comment in comments for line in _wrapped(comment))
    bodies = [
        yaml.dump(
            document,
            Dumper=_Dumper,
            sort_keys=False,
            default_flow_style=False,
            allow_unicode=True,
            # A folded command line or JSON argument is hard to read and to diff.
            width=100_000,
        )
        for document in documents
    ]
    return head + "---\n" + "---\n".join(bodies)
