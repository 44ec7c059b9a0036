"""Tables, plots, files and comparisons."""

from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console

from launcher.bench import compare, plot, report, table
from launcher.bench.pareto import front
from launcher.bench.plot import Point, Series, chart, ticks
from launcher.target.resolve import resolve
from tests.bench.support import make_point

TARGET = resolve("h200-disagg").target
POINTS = [make_point(64, 20), make_point(256, 60), make_point(256, 40, "workers.prefill.count=2")]


def test_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    paths = report.write(tmp_path, TARGET, POINTS)
    assert [path.name for path in paths] == ["report.html", "report.csv", "report.json"]
    html = (tmp_path / "report.html").read_text()
    for word in ("Simulated workers", "Pareto line", "p99", "published", "Little", "workers.prefill.count=2"):
        assert word in html
    assert "<script" not in html
    assert "http" not in html.replace("http://x", "")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))
    assert [row["concurrency"] for row in rows] == ["64", "256", "256"]
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["simulated"] is True
    assert len(found["points"]) == 3


def test_the_table_has_published_figures_and_conditions() -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table.table(TARGET, POINTS))
    text = console.export_text()
    assert "256 published" in text
    assert "1,046" in text
    assert "8,368" in text
    notes = "\n".join(table.notes(TARGET, POINTS))
    assert "AL 2.72" in notes
    assert "began with empty caches" in notes


def test_plots_are_well_formed() -> None:
    svg = chart(
        "a < b", "x & y", "z", [Series("s", [Point(1, 2, "t"), Point(4, 8), Point(math.nan, 1)])], log_x=True
    )
    tree = ET.fromstring(svg)
    assert len([item for item in tree.iter() if item.tag.endswith("circle")]) == 3
    assert "nothing to show" in chart("t", "x", "y", [Series("s", [])])
    ET.fromstring(chart("one", "x", "y", [Series("s", [Point(0, 0)])]))


@pytest.mark.parametrize(("top", "last"), [(0.7, 0.8), (1046, 1200), (7, 8), (0, 1), (1e6, 1e6)])
def test_ticks_are_round(top: float, last: float) -> None:
    found = ticks(top)
    assert found[0] == 0
    assert found[-1] == pytest.approx(last)
    assert 2 <= len(found) <= 8


def test_the_pareto_line() -> None:
    points = [(1, 9), (2, 8), (2, 7), (3, 8), (4, 1), (0.5, 9)]
    assert front(points, lambda p: p[0], lambda p: p[1]) == [(1, 9), (3, 8), (4, 1)]


def test_two_runs_are_told_apart_only_where_they_differ() -> None:
    same = {change.name: change for change in compare.compare(make_point(64, 20), make_point(64, 20))}
    assert same["tok/s/GPU"].better is None
    assert same["tok/s/GPU"].verdict == "no difference shown"
    faster = {change.name: change for change in compare.compare(make_point(64, 20), make_point(64, 30))}
    assert faster["tok/s/GPU"].better is True
    assert faster["tok/s/GPU"].gap.low > 0
    slower = {change.name: change for change in compare.compare(make_point(64, 30), make_point(64, 20))}
    assert slower["tok/s/GPU"].verdict == "worse"


def test_points_pair_by_condition() -> None:
    assert len(compare.pairs(POINTS, POINTS[:2])) == 2
    assert len(compare.pairs(POINTS[:1], POINTS[1:2])) == 1
    assert compare.differing(POINTS[0], POINTS[1]) == ["concurrency: 64 / 256"]


def test_plot_styles_are_once_in_the_page() -> None:
    assert report.html(TARGET, POINTS).count(plot.STYLE) == 1
