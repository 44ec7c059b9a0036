"""One measured point: the figures of a run and what they were measured under."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import stats
from .records import Record

VERSION = 1
CLEAN_TOLERANCE = 0.05
"""Of the hit rate of the first requests: engine and trace count other blocks, so they differ a little."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a point was measured under."""

    target: str
    engine: str
    simulated: bool
    """The workers computed no model."""
    url: str
    concurrency: int
    gpus: int
    """GPUs in use; per-GPU figures divide by them."""
    workload: str
    """In words: trace or lengths, requests, seed."""
    variant: str = ""
    """Values of the target that this point changes, for a sweep."""
    client: str = ""
    """AIPerf's version."""
    started: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """Times are seconds, rates per second of the measured window (first start to last end)."""

    conditions: Conditions
    requests: int
    ok: int
    refused: int
    """Above the context length; not among the errors."""
    errors: int
    duration: float
    tok_s: float
    tok_s_gpu: float
    tok_s_user: float
    """Mean over requests of the rate at which one user sees tokens after the first."""
    ttft_mean: float
    ttft_p50: float
    ttft_p90: float
    ttft_p99: float
    itl_mean: float
    itl_p99: float
    latency_mean: float
    input_mean: float
    output_mean: float
    requests_s: float
    in_flight: float
    """Requests in flight on average, by Little's law: finished requests per second x mean latency."""
    hit: float | None
    """Share of input tokens from prefix caches, as the engines report it; None where they do not."""
    first_hit: float | None = None
    """The same of the first requests after KV state was cleared."""
    first_ideal: float | None = None
    """What the first requests could at most have hit with empty caches."""
    error_kinds: dict[str, int] = field(default_factory=dict)
    batches: dict[str, list[float]] = field(default_factory=dict)
    """Figure to its batch means, from which intervals are made."""

    @property
    def clean(self) -> bool | None:
        """Whether the run began with empty caches; None where that cannot be told."""
        if self.first_hit is None or self.first_ideal is None:
            return None
        return self.first_hit <= self.first_ideal + CLEAN_TOLERANCE

    def interval(self, figure: str) -> stats.Interval:
        """95 % confidence interval of a figure."""
        return stats.interval(self.batches.get(figure, []))

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, "clean": self.clean, **_plain(dataclasses.asdict(self))}


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def load(path: Path) -> Point:
    """A point that was saved. Raises OSError, or ValueError for a file that is none."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or found.pop("version", None) != VERSION:
        raise ValueError(f"{path} is no result of this launcher")
    found.pop("clean", None)
    numbers = {item.name for item in dataclasses.fields(Point) if item.type == "float"}
    values: dict[str, Any] = {
        key: math.nan if value is None and key in numbers else value for key, value in found.items()
    }
    return Point(conditions=Conditions(**values.pop("conditions")), **values)


def measure(
    records: Sequence[Record], conditions: Conditions, ideal: Sequence[tuple[int, int]] = ()
) -> Point:
    """The figures of a run. `ideal`: input tokens and endless-cache hits of each row of the data set, where known."""
    good = [record for record in records if record.ok]
    refused = sum(1 for record in records if record.refused)
    start = min((record.start for record in records), default=0.0)
    end = max((record.end for record in records), default=0.0)
    duration = max(end - start, 1e-9)
    tokens = sum(record.output_tokens or 0 for record in good)
    ttft = [record.ttft for record in good if record.ttft is not None]
    itl = [record.itl for record in good if record.itl]
    user = [1 / gap for gap in itl]
    latency = [record.latency for record in good]
    first_hit, first_ideal = _first(good, conditions.concurrency, ideal)
    return Point(
        conditions=conditions,
        requests=len(records),
        ok=len(good),
        refused=refused,
        errors=len(records) - len(good) - refused,
        duration=duration,
        tok_s=tokens / duration,
        tok_s_gpu=tokens / duration / conditions.gpus,
        tok_s_user=stats.mean(user),
        ttft_mean=stats.mean(ttft),
        ttft_p50=stats.quantile(ttft, 0.5),
        ttft_p90=stats.quantile(ttft, 0.9),
        ttft_p99=stats.quantile(ttft, 0.99),
        itl_mean=stats.mean(itl),
        itl_p99=stats.quantile(itl, 0.99),
        latency_mean=stats.mean(latency),
        input_mean=stats.mean([record.input_tokens for record in good if record.input_tokens is not None]),
        output_mean=stats.mean([record.output_tokens for record in good if record.output_tokens is not None]),
        requests_s=len(good) / duration,
        in_flight=sum(latency) / duration,
        hit=_hit(good),
        first_hit=first_hit,
        first_ideal=first_ideal,
        error_kinds=dict(
            Counter(
                record.error[:200] for record in records if record.error and not record.refused
            ).most_common(5)
        ),
        batches={
            "tok_s_gpu": [rate / conditions.gpus for rate in _rates(good, start, duration)],
            "tok_s_user": stats.batches(user),
            "ttft_mean": stats.batches(ttft),
            "itl_mean": stats.batches(itl),
        },
    )


def _hit(records: Sequence[Record]) -> float | None:
    known = [record for record in records if record.cached_tokens is not None and record.input_tokens]
    total = sum(record.input_tokens or 0 for record in known)
    return sum(record.cached_tokens or 0 for record in known) / total if total else None


def _first(
    records: Sequence[Record], concurrency: int, ideal: Sequence[tuple[int, int]]
) -> tuple[float | None, float | None]:
    """Hit rate of the first requests, and what the data set allows them at most with empty caches."""
    # As many as are in flight at once: what comes later hits what these left behind, cleared or not.
    first = [record for record in records[: max(1, concurrency)] if record.row < len(ideal)]
    possible = total = 0
    for record in first:
        length, hit = ideal[record.row]
        sent = record.input_tokens or length
        # The chat template's own words come before each prompt and are the same for all.
        possible += hit + max(0, sent - length)
        total += sent
    return (_hit(first), possible / total) if total else (None, None)


def _rates(records: Sequence[Record], start: float, duration: float) -> list[float]:
    """Output tokens per second in equal windows of the run; a request's tokens spread from its first to its last."""
    if not records:
        return []
    count = min(stats.BATCHES, max(2, len(records) // 5))
    width = duration / count
    totals = [0.0] * count
    for record in records:
        begin = record.start + (record.ttft or 0.0) - start
        finish = max(record.end - start, begin + 1e-9)
        for index in range(max(0, int(begin / width)), min(count, int(finish / width) + 1)):
            overlap = min(finish, (index + 1) * width) - max(begin, index * width)
            totals[index] += (record.output_tokens or 0) * max(0.0, overlap) / (finish - begin)
    return [total / width for total in totals]
