"""The newest lines of the logs that report an error. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from launcher.plan.model import Role
from launcher.supervise.events import ProcessState
from launcher.supervise.logs import level_of

KEPT = 5
LOOKED_AT = 50
"""Newest lines of each process that are looked at."""
COUNTED = 1000
"""Newest lines of the frontend in which clients' errors are counted."""
LONGEST = 300
"""Characters of a line that are kept."""
_LOUD = ("error", "critical")
# Dynamo's HTTP servers report every 503 to a health probe, ours too while a worker loads.
_OF_PROBES = "tower_http::trace::on_failure"
# The frontend reports a client's mistake as its own error, in one line or two: the answer, and the request's end.
_ANSWERED_4XX = re.compile(r"\bstatus\"?[=:]\s*\"?4\d\d\b")
_OF_CLIENTS = re.compile(r"\berror_type\"?[=:]\s*\"?(?:validation|not_found|cancelled)\b")
WINDOW_S = 60.0
"""For which clients' errors are counted."""
_NOT_TOLD = re.compile(r"\bhttp-request(?:\{[^}]*\})?: |\s*\brequest_id=\S+")
"""What stands before, or beside, what happened."""
_CLOCK = re.compile(r"^\S*\d\d:\d\d:\d\d\S*\s+")


def errors(
    records: Callable[[str, int], Sequence[tuple[float, str, str]]], states: Sequence[ProcessState]
) -> list[dict[str, Any]]:
    """The newest error lines, the newest last; what a process wrote before it became ready was overcome."""
    now, wall = time.monotonic(), time.time()
    found: list[dict[str, Any]] = []
    for state in states:
        since = wall - (now - state.ready_at) if state.ready_at is not None and state.healthy else 0.0
        found += (
            {"time": at, "process": state.name, "line": _NOT_TOLD.sub("", _CLOCK.sub("", line))[:LONGEST]}
            for at, _, line in records(state.name, LOOKED_AT)
            if at >= since and level_of(line) in _LOUD and not _is_no_trouble(line)
        )
    return sorted(found, key=lambda error: error["time"])[-KEPT:]


def client_errors(
    records: Callable[[str, int], Sequence[tuple[float, str, str]]], states: Sequence[ProcessState]
) -> int:
    """How many requests got a 4xx in the last `WINDOW_S` seconds, of those among the frontend's newest lines."""
    since = time.time() - WINDOW_S
    return sum(
        at >= since and level_of(line) in _LOUD and _ANSWERED_4XX.search(line) is not None
        for state in states
        if state.role is Role.FRONTEND
        for at, _, line in records(state.name, COUNTED)
    )


def _is_no_trouble(line: str) -> bool:
    """Whether it is an error of a client or a probe, not of the deployment."""
    return (
        _OF_PROBES in line or _ANSWERED_4XX.search(line) is not None or _OF_CLIENTS.search(line) is not None
    )
