"""The line of a log that says first what went wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.supervise.logs import level_of

_LOUD = ("error", "critical")
_TRACEBACK = "Traceback (most recent call last):"
LONGEST = 500
"""Characters of the line that are kept."""


def first_error(lines: Sequence[str]) -> str:
    """The first line that reports an error; of a Python traceback its last, which names the exception. Or empty.

    What a dying process writes afterwards is mostly consequences: refused connections, closed queues.
    """
    for index, line in enumerate(lines):
        if _TRACEBACK in line:
            prefix = line[: line.index(_TRACEBACK)]
            return _raised(lines[index + 1 :], prefix)[:LONGEST]
        if level_of(line) in _LOUD:
            return line.strip()[:LONGEST]
    return ""


def _raised(lines: Sequence[str], prefix: str) -> str:
    """The exception of a traceback whose lines all begin with `prefix`, such as `(EngineCore pid=7) `."""
    for line in lines:
        rest = line.removeprefix(prefix)
        if rest and not rest[0].isspace():
            return rest.strip()
    return "a traceback that was cut off"
