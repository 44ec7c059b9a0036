"""The points that no other point beats on both axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def front(items: Iterable[T], x: Callable[[T], float], y: Callable[[T], float]) -> list[T]:
    """The Pareto line, larger being better on both axes, by rising x."""
    best: list[T] = []
    for item in sorted(items, key=lambda item: (x(item), y(item)), reverse=True):
        if not best or y(item) > y(best[-1]):
            best.append(item)
    return best[::-1]
