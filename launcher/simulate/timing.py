"""Timing tables: how long one pass of an engine takes on a GPU, from measured kernels or from the user's own profile.

A table (`data/*.json`, made by scripts/bench_timing.py) gives one prefill pass for each (cached prefix, new tokens)
and one decode step for each (batch, context), in milliseconds. The simulator knows neither prefixes nor speculative
decoding in its timing, so both are put in here.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

Grid = dict[str, Any]
"""What the simulator's `planner_profile_data` holds."""
KV_STEPS = [0] + [1 << power for power in range(10, 24)]
"""Tokens in a worker's KV cache at which decode is tabulated: to 8 million, above what any GPU here holds."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One table."""

    name: str
    source: str
    prefix: tuple[float, ...]
    new: tuple[float, ...]
    prefill_ms: tuple[tuple[float, ...], ...]
    """By prefix, then new tokens."""
    batch: tuple[float, ...]
    context: tuple[float, ...]
    decode_ms: tuple[tuple[float, ...], ...]
    """By batch, then context."""

    def prefill(self, new: float, prefix: float) -> float:
        """One prefill pass of one request, ms."""
        return bilinear(self.prefix, self.new, self.prefill_ms, prefix, new)

    def decode(self, batch: float, context: float) -> float:
        """One decode step, ms."""
        return bilinear(self.batch, self.context, self.decode_ms, max(batch, 1.0), context)

    def verify(self, batch: float, context: float, tokens: int) -> float:
        """One step that checks `tokens` tokens of each of `batch` requests, ms.

        The dense and expert layers see `tokens` times the batch; the KV cache of a request is read once for all of its
        tokens. What reading costs is what the step takes beyond one with hardly any context.
        """
        reading = self.decode(batch, context) - self.decode(batch, self.context[0])
        return self.decode(batch * tokens, self.context[0]) + max(0.0, reading)


def names() -> list[str]:
    """The tables that the launcher has."""
    folder = resources.files("launcher.simulate") / "data"
    return sorted(
        entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")
    )


def load(name: str) -> Timing:
    """A table by name. KeyError where there is none."""
    if name not in names():
        raise KeyError(name)
    found = json.loads(
        (resources.files("launcher.simulate") / "data" / f"{name}.json").read_text(encoding="utf-8")
    )
    prefill, decode = found["prefill"], found["decode"]
    return Timing(
        name=name,
        source=f"{found['tool']}, {found['system']}, {found['backend']} {found['version']}, {found['moe']} experts",
        prefix=tuple(prefill["prefix"]),
        new=tuple(prefill["new"]),
        prefill_ms=tuple(tuple(row) for row in prefill["ms"]),
        batch=tuple(decode["batch"]),
        context=tuple(decode["context"]),
        decode_ms=tuple(tuple(row) for row in decode["ms"]),
    )


def grid(timing: Timing, *, prefix: float, draft_tokens: int = 0, accepted: float = 1.0) -> Grid:
    """The table in the simulator's form, for requests with `prefix` tokens in the cache.

    With `draft_tokens`, a step checks one token more than that and yields `accepted` of them on average (the acceptance
    length), so the time for each token is the step's by that. The draft model's own passes cost nothing here.
    """
    decode = []
    for held in KV_STEPS:
        row = []
        for context in timing.context:
            batch = max(1.0, held / context)
            step = (
                timing.verify(batch, context, draft_tokens + 1)
                if draft_tokens
                else timing.decode(batch, context)
            )
            row.append(step / accepted)
        decode.append(row)
    return {
        "prefill_isl": list(timing.new),
        "prefill_ttft_ms": [timing.prefill(new, prefix) for new in timing.new],
        "decode_active_kv_tokens": KV_STEPS,
        "decode_context_length": list(timing.context),
        "decode_itl": decode,
    }


def bilinear(
    rows: Sequence[float],
    columns: Sequence[float],
    values: Sequence[Sequence[float]],
    row: float,
    column: float,
) -> float:
    """Between the table's points in straight lines, beyond its ends in the last one's direction; never below 0."""
    first, share = _place(rows, row)
    left, part = _place(columns, column)

    def along(which: int) -> float:
        line = values[which]
        return line[left] + (line[left + 1] - line[left]) * part

    low = along(first)
    return max(0.0, low + (along(first + 1) - low) * share)


def _place(points: Sequence[float], value: float) -> tuple[int, float]:
    """The interval that a value lies in, and where in it."""
    index = min(max(bisect_left(points, value) - 1, 0), len(points) - 2)
    share = (value - points[index]) / (points[index + 1] - points[index])
    return index, share if math.isfinite(share) else 0.0
