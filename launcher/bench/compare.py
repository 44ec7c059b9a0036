"""Two runs side by side, each difference with its 95 % confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import stats
from .point import Point

FIGURES = {
    "tok_s_gpu": ("tok/s/GPU", 1.0, True),
    "tok_s_user": ("tok/s/user", 1.0, True),
    "ttft_mean": ("TTFT mean, ms", 1e3, False),
    "itl_mean": ("ITL mean, ms", 1e3, False),
}
"""Figure to its heading, factor for display, and whether more is better."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of two runs."""

    name: str
    before: stats.Interval
    after: stats.Interval
    gap: stats.Interval
    better: bool | None
    """None: the interval of the difference holds 0, so the runs cannot be told apart."""

    @property
    def verdict(self) -> str:
        if self.better is None:
            return "no difference shown"
        return "better" if self.better else "worse"


def compare(before: Point, after: Point) -> list[Change]:
    """Every figure of two points."""
    changes = []
    for figure, (name, factor, more) in FIGURES.items():
        first = [value * factor for value in before.batches.get(figure, [])]
        second = [value * factor for value in after.batches.get(figure, [])]
        gap = stats.difference(first, second)
        better = None
        if math.isfinite(gap.low) and (gap.low > 0 or gap.high < 0):
            better = (gap.mean > 0) == more
        changes.append(Change(name, stats.interval(first), stats.interval(second), gap, better))
    return changes


def pairs(before: Sequence[Point], after: Sequence[Point]) -> list[tuple[Point, Point]]:
    """Points of two sweeps that were measured at the same concurrency and variant; single points pair in any case."""
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    found = {(point.conditions.concurrency, point.conditions.variant): point for point in before}
    keys = [(point.conditions.concurrency, point.conditions.variant) for point in after]
    return [(found[key], point) for key, point in zip(keys, after, strict=True) if key in found]


def differing(before: Point, after: Point) -> list[str]:
    """Conditions in which two points differ, other than when they were measured."""
    names = ("target", "engine", "simulated", "concurrency", "gpus", "workload", "variant", "client")
    return [
        f"{name}: {getattr(before.conditions, name)} / {getattr(after.conditions, name)}"
        for name in names
        if getattr(before.conditions, name) != getattr(after.conditions, name)
    ]
