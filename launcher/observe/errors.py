"""The newest lines of the logs that report an error. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from launcher.supervise.events import ProcessState
from launcher.supervise.logs import level_of

KEPT = 5
LOOKED_AT = 50
"""Newest lines of each process that are looked at."""
LONGEST = 300
"""Characters of a line that are kept."""
_LOUD = ("error", "critical")
# Dynamo's HTTP servers report every 503 to a health probe, ours too while a worker loads.
_OF_PROBES = "tower_http::trace::on_failure"
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
            {"time": at, "process": state.name, "line": _CLOCK.sub("", line)[:LONGEST]}
            for at, _, line in records(state.name, LOOKED_AT)
            if at >= since and level_of(line) in _LOUD and _OF_PROBES not in line
        )
    return sorted(found, key=lambda error: error["time"])[-KEPT:]
