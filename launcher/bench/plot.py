"""Plots as SVG text: no library, no script, readable in a light or a dark page and on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 36, 52
COLOURS = ("#1b7f3b", "#2458c6", "#c2410c", "#7c3aed", "#0e7490", "#b91c6f", "#6b7280")
STYLE = (
    "<style>.plot{font:12px system-ui,sans-serif;max-width:100%;height:auto}.plot text{fill:currentColor}"
    ".plot .grid{stroke:currentColor;opacity:.15}.plot .axis{stroke:currentColor;opacity:.6}"
    ".plot .title{font-weight:600;font-size:14px}</style>"
)
"""Once for a page with plots."""


@dataclass(frozen=True, slots=True)
class Point:
    """One mark; `text` shows when the pointer rests on it, `label` always."""

    x: float
    y: float
    text: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour, joined by a line where `line`."""

    name: str
    points: Sequence[Point]
    line: bool = True
    dashed: bool = False
    marks: bool = True
    hollow: bool = False
    """Rings in place of dots: figures that others published."""


def chart(title: str, x_label: str, y_label: str, series: Sequence[Series], *, log_x: bool = False) -> str:
    """One SVG. Points that are not finite are left out."""
    kept = [
        Series(
            each.name,
            [point for point in each.points if math.isfinite(point.x) and math.isfinite(point.y)],
            each.line,
            each.dashed,
            each.marks,
            each.hollow,
        )
        for each in series
    ]
    kept = [each for each in kept if each.points]
    if not kept:
        return f'<p class="plot">{escape(title)}: nothing to show.</p>'
    every = [point for each in kept for point in each.points]
    log_x = log_x and all(point.x > 0 for point in every)
    x_ticks = _log_ticks([point.x for point in every]) if log_x else ticks(max(point.x for point in every))
    y_ticks = ticks(max(point.y for point in every))
    frame = _Frame(x_ticks, y_ticks, log_x)
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{escape(title)}">',
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
        *frame.axes(x_label, y_label),
    ]
    for index, each in enumerate(kept):
        parts += _draw(each, COLOURS[index % len(COLOURS)], frame)
        y = TOP + 14 + 20 * index
        parts.append(_mark(WIDTH - RIGHT + 22, y - 4, COLOURS[index % len(COLOURS)], each.hollow, ""))
        parts.append(f'<text x="{WIDTH - RIGHT + 32}" y="{y}">{escape(each.name)}</text>')
    parts.append("</svg>")
    return "\n".join(parts)


def ticks(top: float, count: int = 6) -> list[float]:
    """Round numbers from 0 to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return [step * index for index in range(math.ceil(top / step - 1e-9) + 1)]


def _log_ticks(values: Sequence[float]) -> list[float]:
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    return [2.0**power for power in range(low, max(high, low + 1) + 1)]


class _Frame:
    """Where a value lies in the picture."""

    def __init__(self, x_ticks: list[float], y_ticks: list[float], log_x: bool) -> None:
        self._x_ticks, self._y_ticks, self._log_x = x_ticks, y_ticks, log_x

    def x(self, value: float) -> float:
        low, high = self._x_ticks[0], self._x_ticks[-1]
        share = math.log(value / low) / math.log(high / low) if self._log_x else (value - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._y_ticks[-1] * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str) -> list[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts = []
        for tick in self._y_ticks:
            y = self.y(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,g}</text>')
        for tick in self._x_ticks:
            x = self.x(tick)
            parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:,g}</text>')
        parts.append(f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>')
        parts.append(f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{bottom}"/>')
        middle = (LEFT + right) / 2
        parts.append(
            f'<text x="{middle:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>'
        )
        parts.append(
            f'<text transform="translate(16 {(TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(y_label)}</text>"
        )
        return parts


def _draw(series: Series, colour: str, frame: _Frame) -> list[str]:
    places = [(frame.x(point.x), frame.y(point.y), point) for point in series.points]
    parts = []
    if series.line and len(places) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        dashes = ' stroke-dasharray="5 4"' if series.dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>')
    for x, y, point in places if series.marks else ():
        parts.append(_mark(x, y, colour, series.hollow, point.text))
        if point.label:
            parts.append(f'<text x="{x + 7:.1f}" y="{y - 6:.1f}">{escape(point.label)}</text>')
    return parts


def _mark(x: float, y: float, colour: str, hollow: bool, text: str) -> str:
    fill = "none" if hollow else colour
    title = f"<title>{escape(text)}</title>" if text else ""
    look = f'fill="{fill}" stroke="{colour}" stroke-width="1.8"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {look}>{title}</circle>'
