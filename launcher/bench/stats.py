"""Means with confidence intervals from one run: batch means, which allow for requests that depend on each other."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

BATCHES = 20
T_95 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)
"""Student's t, two-sided 95 %, for 1 degree of freedom on."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:,.4g} [{self.low:,.4g}, {self.high:,.4g}]"


def quantile(values: Sequence[float], share: float) -> float:
    """Between the nearest values in a straight line; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def mean(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return statistics.fmean(values) if values else math.nan


def batches(values: Sequence[float], count: int = BATCHES) -> list[float]:
    """Means of consecutive stretches of equal size; fewer stretches where there are few values."""
    count = min(count, len(values))
    if count < 2:
        return list(values)
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    return [statistics.fmean(values[low:high]) for low, high in itertools.pairwise(edges)]


def interval(means: Sequence[float]) -> Interval:
    """Of the mean, from batch means; without bounds where there are fewer than two."""
    if len(means) < 2:
        return Interval(mean(means), -math.inf, math.inf)
    middle = statistics.fmean(means)
    half = student(len(means) - 1) * statistics.stdev(means) / math.sqrt(len(means))
    return Interval(middle, middle - half, middle + half)


def difference(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Of the means of two runs (after less before), by Welch's method on their batch means."""
    if len(before) < 2 or len(after) < 2:
        return Interval(mean(after) - mean(before), -math.inf, math.inf)
    parts = [(statistics.variance(means) / len(means), len(means)) for means in (before, after)]
    spread = sum(part for part, _ in parts)
    gap = statistics.fmean(after) - statistics.fmean(before)
    if spread == 0:
        return Interval(gap, gap, gap)
    freedom = spread**2 / sum(part**2 / (size - 1) for part, size in parts)
    half = student(freedom) * math.sqrt(spread)
    return Interval(gap, gap - half, gap + half)


def student(freedom: float) -> float:
    """Student's t for a two-sided 95 %."""
    whole = max(1, math.floor(freedom))
    if whole <= len(T_95):
        return T_95[whole - 1]
    # Within 0.2 % of the true value from 16 degrees of freedom on.
    return 1.96 + 2.5 / freedom
