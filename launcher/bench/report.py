"""A sweep as files: one HTML page with plots and nothing else to load, CSV for a spreadsheet, JSON for scripts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from launcher.target.schema import Target

from . import plot, table
from .pareto import front
from .point import Point
from .stats import Interval

COLUMNS = (
    "tok_s",
    "tok_s_gpu",
    "tok_s_user",
    "ttft_mean",
    "ttft_p50",
    "ttft_p90",
    "ttft_p99",
    "itl_mean",
    "itl_p99",
    "latency_mean",
    "requests_s",
    "in_flight",
    "hit",
    "first_hit",
    "first_ideal",
    "requests",
    "ok",
    "errors",
    "refused",
    "duration",
    "input_mean",
    "output_mean",
)
CSS = (
    "<style>body{font:15px system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:13px}td,th{padding:.2rem .6rem;text-align:right}"
    "td:first-child,th:first-child{text-align:left}.bad{color:#b91c1c;font-weight:600}</style>"
)


def write(folder: Path, target: Target, points: Sequence[Point]) -> list[Path]:
    """The three files; returns their paths."""
    files = {
        "report.html": html(target, points),
        "report.csv": as_csv(points),
        "report.json": as_json(target, points),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def as_json(target: Target, points: Sequence[Point]) -> str:
    """Points with their batch means, so that two reports can be compared later."""
    known = target.published
    found = {
        "target": target.name,
        "simulated": any(point.conditions.simulated for point in points),
        "published": known.model_dump() if known else None,
        "notes": table.notes(target, points),
        "points": [point.to_json() for point in points],
    }
    return json.dumps(found, indent=1) + "\n"


def as_csv(points: Iterable[Point]) -> str:
    """One line a point; seconds, tokens and tokens per second."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["target", "variant", "concurrency", "gpus", "simulated", "clean", *COLUMNS])
    for point in points:
        about = point.conditions
        row = [getattr(point, name) for name in COLUMNS]
        clean = "" if point.clean is None else point.clean
        out.writerow(
            [about.target, about.variant, about.concurrency, about.gpus, about.simulated, clean]
            + [
                f"{value:.6g}" if isinstance(value, float) else "" if value is None else value
                for value in row
            ]
        )
    return text.getvalue()


def html(target: Target, points: Sequence[Point]) -> str:
    """The page."""
    simulated = any(point.conditions.simulated for point in points)
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(target.name)}: benchmark</title>",
        "<meta name=color-scheme content='light dark'>",
        plot.STYLE,
        CSS,
        f"<h1>{escape(target.name)}</h1><p>{escape(target.title)}</p>",
        "<p class=bad>Simulated workers: no figure here is one of a GPU.</p>" if simulated else "",
        plot.chart("Throughput against interactivity", "tok/s/user", "tok/s/GPU", _trade(target, points)),
        plot.chart(
            "Time to first token", "concurrency", "seconds", _percentiles(points), log_x=_spread(points)
        ),
        plot.chart("Throughput", "concurrency", "tok/s/GPU", _by_variant(points), log_x=_spread(points)),
        _rows(points),
        "<h2>Conditions</h2><ul>",
        *(f"<li>{escape(line)}</li>" for line in table.notes(target, points)),
        "</ul></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _spread(points: Sequence[Point]) -> bool:
    levels = [point.conditions.concurrency for point in points]
    return max(levels) >= 4 * min(levels)


def _variants(points: Sequence[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.conditions.concurrency):
        found.setdefault(point.conditions.variant or point.conditions.target, []).append(point)
    return found


def _text(point: Point) -> str:
    return (
        f"concurrency {point.conditions.concurrency}: {table.number(point.tok_s_gpu)} tok/s/GPU, "
        f"{table.number(point.tok_s_user, 1)} tok/s/user, TTFT {table.number(point.ttft_mean, 3)} s"
    )


def _trade(target: Target, points: Sequence[Point]) -> list[plot.Series]:
    series = [
        plot.Series(
            name,
            [
                plot.Point(each.tok_s_user, each.tok_s_gpu, _text(each), f"{each.conditions.concurrency}")
                for each in group
            ],
            line=False,
        )
        for name, group in _variants(points).items()
    ]
    line = front(points, lambda each: each.tok_s_user, lambda each: each.tok_s_gpu)
    series.append(
        plot.Series(
            "Pareto line",
            [plot.Point(each.tok_s_user, each.tok_s_gpu) for each in line],
            dashed=True,
            marks=False,
        )
    )
    known = target.published
    if known is not None:
        mark = plot.Point(known.tok_s_user, known.tok_s_gpu, known.conditions, f"{known.concurrency}")
        series.append(plot.Series("published", [mark], line=False, hollow=True))
    return series


def _percentiles(points: Sequence[Point]) -> list[plot.Series]:
    series = []
    groups = _variants(points)
    for name, group in groups.items():
        ahead = f"{name}, " if len(groups) > 1 else ""
        for label, figure in (
            ("mean", "ttft_mean"),
            ("p50", "ttft_p50"),
            ("p90", "ttft_p90"),
            ("p99", "ttft_p99"),
        ):
            places = [
                plot.Point(each.conditions.concurrency, getattr(each, figure), _text(each)) for each in group
            ]
            series.append(plot.Series(ahead + label, places, dashed=figure == "ttft_mean"))
    return series


def _by_variant(points: Sequence[Point]) -> list[plot.Series]:
    return [
        plot.Series(
            name, [plot.Point(each.conditions.concurrency, each.tok_s_gpu, _text(each)) for each in group]
        )
        for name, group in _variants(points).items()
    ]


def _rows(points: Sequence[Point]) -> str:
    head = (
        "point",
        "tok/s/GPU [95 %]",
        "tok/s/user [95 %]",
        "TTFT mean s [95 %]",
        "p50",
        "p90",
        "p99",
        "ITL ms",
    )
    tail = ("hits", "first hits / possible", "ok", "errors", "refused")
    lines = ["<table><tr>" + "".join(f"<th>{cell}</th>" for cell in (*head, *tail)) + "</tr>"]
    for point in points:
        about = point.conditions
        cells = [
            f"{about.concurrency} {about.variant}",
            _span(point.tok_s_gpu, point.interval("tok_s_gpu"), 0),
            _span(point.tok_s_user, point.interval("tok_s_user"), 1),
            _span(point.ttft_mean, point.interval("ttft_mean"), 3),
            table.number(point.ttft_p50, 3),
            table.number(point.ttft_p90, 3),
            table.number(point.ttft_p99, 3),
            table.number(point.itl_mean * 1e3, 2),
            _share(point.hit),
            f"{_share(point.first_hit)} / {_share(point.first_ideal)}",
            str(point.ok),
            str(point.errors),
            str(point.refused),
        ]
        mark = " class=bad" if point.clean is False else ""
        lines.append(f"<tr{mark}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return "".join([*lines, "</table>"])


def _span(value: float, span: Interval, digits: int) -> str:
    return (
        f"{table.number(value, digits)} [{table.number(span.low, digits)}, {table.number(span.high, digits)}]"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
