"""How a line of a child's log is shown: as text with the process's name, or as one JSON object."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Protocol

LAUNCHER = "launcher"
"""The name under which the launcher's own lines appear."""

_SGR = re.compile(r"\x1b\[[0-9;]*m")
# Colours are CSI sequences that end in m; the rest moves a cursor, sets a title or talks to a terminal.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[@-Z\\-_])")
_NOT_SGR = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-ln-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[@-Z\\-_])"
)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_CLOCK_WITHIN = 64
_DYNAMO = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z)\s+(TRACE|DEBUG|INFO|WARN|ERROR)\s+([\w:.\-]+): (.*)", re.S)
_LEVEL = re.compile(r"\b(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\[([TDIWEF])\]")
_LEVEL_WITHIN = 96
_LEVELS = {
    "T": "trace", "D": "debug", "I": "info", "W": "warning", "E": "error", "F": "critical",
    "WARN": "warning", "FATAL": "critical",
}  # fmt: skip
_OURS = ("time", "process", "role", "stream", "level", "message")


def plain(text: str) -> str:
    """The text without terminal escape sequences."""
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def has_clock(line: str) -> bool:
    """Whether the line carries a time of day near its start."""
    return _CLOCK.search(line, 0, _CLOCK_WITHIN) is not None


def stamp(wall: float | None = None) -> str:
    """A time (seconds since the epoch, now by default) as the children write it: UTC, ISO 8601, milliseconds."""
    moment = datetime.fromtimestamp(time.time() if wall is None else wall, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def level_of(line: str) -> str:
    """The level that a line names near its start, in lower case (`warning`, not `warn`); `info` without one."""
    found = _LEVEL.search(line, 0, _LEVEL_WITHIN)
    return _level(found[1] or found[2]) if found else "info"


def _level(word: str) -> str:
    upper = word.upper()
    return _LEVELS.get(upper, upper.lower())


class Log(Protocol):
    """A line of the launcher's log."""

    def __call__(self, message: str, level: str = "info") -> None: ...


class Format(Protocol):
    """Turns lines of one process and stream into what stdout gets, each line ended by a newline."""

    def lines(self, process: str, role: str, stream: str, lines: Iterable[str], wall: float) -> str: ...

    def own(self, level: str, message: str, wall: float) -> str: ...


class TextFormat:
    """`prefill-0 | the line`, names aligned, with a time where the line has none."""

    COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)

    def __init__(self, names: Iterable[str] = (), *, colour: bool = False) -> None:
        """`names`: the processes to align; `colour`: the output is a terminal, which keeps a child's colours."""
        self._width = max((len(name) for name in (*names, LAUNCHER)), default=0)
        self._colour = colour
        self._prefixes: dict[str, str] = {}

    def _prefix(self, process: str) -> str:
        prefix = self._prefixes.get(process)
        if prefix is None:
            prefix = f"{process:<{self._width}} | "
            if self._colour:
                colour = 1 if process == LAUNCHER else self.COLOURS[len(self._prefixes) % len(self.COLOURS)]
                prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
            self._prefixes[process] = prefix
        return prefix

    def lines(self, process: str, role: str, stream: str, lines: Iterable[str], wall: float) -> str:
        prefix = self._prefix(process)
        timed = f"{prefix}{stamp(wall)} "
        search = _CLOCK.search
        text = "".join([f"{prefix if search(line, 0, _CLOCK_WITHIN) else timed}{line}\n" for line in lines])
        if "\x1b" in text:
            text = self._sober(text, prefix)
        return text

    def _sober(self, text: str, prefix: str) -> str:
        if not self._colour:
            return _ESCAPE.sub("", text)
        # A colour left on by one child must not run into the next child's line.
        text = _NOT_SGR.sub("", text)
        ours = prefix.count("\x1b")
        rows = text[:-1].split("\n")
        return "".join([row + ("\x1b[0m\n" if row.count("\x1b") > ours else "\n") for row in rows])

    def own(self, level: str, message: str, wall: float) -> str:
        prefix = f"{self._prefix(LAUNCHER)}{stamp(wall)} {level.upper():>7} "
        return "".join([f"{prefix}{line}\n" for line in message.split("\n")])


class JsonFormat:
    """One object per line: time, process, role, stream, level, message.

    A child's own JSON line is merged: its time, level and message take those places, its other fields stand
    beside them. Fields of the child that would hide ours come out under `child.NAME`.
    """

    def lines(self, process: str, role: str, stream: str, lines: Iterable[str], wall: float) -> str:
        now = stamp(wall)
        ours = f'"process":{_quote(process)},"role":{_quote(role)},"stream":{_quote(stream)},'
        rows: list[str] = []
        for line in lines:
            text = plain(line)
            if text.startswith("{") and (child := _load(text)) is not None:
                rows.append(
                    _dump(_merge({"time": now, "process": process, "role": role, "stream": stream}, child))
                )
            elif text[:1].isdigit() and (found := _DYNAMO.match(text)) is not None:
                level, target, message = _level(found[2]), _quote(found[3]), _quote(found[4])
                # Put together by hand: several times faster than a dictionary and its dump.
                rows.append(
                    f'{{"time":"{found[1]}",{ours}"level":"{level}","target":{target},"message":{message}}}'
                )
            else:
                rows.append(f'{{"time":"{now}",{ours}"level":"{level_of(text)}","message":{_quote(text)}}}')
        return "\n".join(rows) + "\n" if rows else ""

    def own(self, level: str, message: str, wall: float) -> str:
        record = {
            "time": stamp(wall),
            "process": LAUNCHER,
            "role": LAUNCHER,
            "level": level,
            "message": message,
        }
        return _dump(record) + "\n"


def _load(line: str) -> dict[str, Any] | None:
    if not line.rstrip().endswith("}"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    # Without a message it is data that a child printed (a config, a result), not a log record.
    if isinstance(value, dict) and ("message" in value or "msg" in value):
        return value
    return None


def _merge(record: dict[str, Any], child: dict[str, Any]) -> dict[str, Any]:
    if isinstance(child.get("time"), str):
        record["time"] = child.pop("time")
    record["level"] = _level(child.pop("level")) if isinstance(child.get("level"), str) else "info"
    record["message"] = child.pop("message") if "message" in child else child.pop("msg")
    for name, value in child.items():
        record[f"child.{name}" if name in _OURS else name] = value
    return record


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quote = json.JSONEncoder(ensure_ascii=False).encode
