"""A target's `args` mapping as a command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def to_argv(args: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags in the mapping's order: true gives `--flag`, false `--no-flag`, a mapping or list gives JSON."""
    return tuple(_each(args))


def _each(args: Mapping[str, Any]) -> Iterator[str]:
    for name, value in args.items():
        if value is True:
            yield f"--{name}"
        elif value is False:
            yield f"--no-{name}"
        else:
            yield f"--{name}"
            yield text(value)


def text(value: Any) -> str:
    """A value as one argument or environment value: JSON for mappings and lists, booleans in Python's spelling."""
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


def to_env(env: Mapping[str, Any]) -> dict[str, str]:
    """A target's `env` mapping as environment values."""
    return {name: text(value) for name, value in env.items()}
