"""The Grafana dashboard asks only for what is really exported, and is what its description makes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.observe.exposition import parse
from tests.observe.test_metrics import page

ROOT = Path(__file__).parents[2]
FILE = ROOT / "configs" / "grafana" / "gpt-oss-launcher.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
CAPTURE = (Path(__file__).parent / "data" / "sim_metrics.txt").read_text()
METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?=\{)")
LABELS = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
ADDED_BY_PROMETHEUS = {"instance", "job"}


def expressions() -> Iterator[str]:
    """Every query of the dashboard, those of its variables too."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((\w+),", r"label_values(\1{},", variable["definition"])


def exported(text: str) -> dict[str, set[str]]:
    """Sample name to the labels that it has, of a page."""
    found: dict[str, set[str]] = {}
    for family in parse(text).families.values():
        for name, labels, _ in family.samples:
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


EXPORTED = exported(CAPTURE) | exported(page())
"""By a real simulated run, and by the launcher on a machine with a GPU."""


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_metric_and_label_asked_for_is_exported(expression: str) -> None:
    names = METRIC.findall(expression)
    assert names
    for name in names:
        assert name in EXPORTED, name
    for name, matchers in LABELS.findall(expression):
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert asked <= EXPORTED[name] | ADDED_BY_PROMETHEUS, name
    grouped = {label for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(", ")}
    assert grouped <= set().union(*(EXPORTED[name] for name in names))


def test_every_legend_names_a_label_that_the_query_leaves() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            by = re.search(r"by \(([^)]*)\)", target["expr"])
            names = METRIC.findall(target["expr"])
            kept = set(by[1].split(", ")) if by else set().union(*(EXPORTED[name] for name in names))
            assert used <= kept, target["expr"]


def test_what_was_asked_for_is_there() -> None:
    titles = {panel["title"] for panel in DASHBOARD["panels"]}
    assert {
        "Requests", "Time to first token", "Inter-token latency", "Tokens", "KV usage", "Router hit rate", "Restarts",
        "Ready", "Requests per worker", "GPU memory",
    } <= titles  # fmt: skip


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    cells: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & own, panel["title"]
        cells |= own


def test_no_panel_is_bound_to_one_data_source() -> None:
    assert "${datasource}" in FILE.read_text()
    for panel in DASHBOARD["panels"]:
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"


def test_the_file_is_what_its_description_makes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.grafana", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
