"""Queries and panels, in the few forms that the dashboard uses."""

from __future__ import annotations

from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE = 'instance=~"$instance"'
WORKER = f'{HERE},worker=~"$worker"'
INTERVAL = "[$__rate_interval]"
WIDTH = 24
"""Columns of Grafana's grid."""


def rate(metric: str, by: str = "", labels: str = HERE) -> str:
    """The sum of a counter's rates, grouped."""
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{labels}}}{INTERVAL}))"


def share(part: str, whole: str, by: str = "", labels: str = HERE) -> str:
    """One counter's rate in relation to another's."""
    return f"{rate(part, by, labels)} / {rate(whole, by, labels)}"


def quantiles(histogram: str) -> list[tuple[str, str]]:
    """Median, 90th and 99th percentile."""
    buckets = rate(f"{histogram}_bucket", "le")
    return [(f"histogram_quantile({q}, {buckets})", f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99)]


def panel(
    kind: str, title: str, text: str, unit: str, queries: list[tuple[str, str]], **more: Any
) -> dict[str, Any]:
    """One panel; `queries` are (expression, legend)."""
    instant = kind in ("stat", "bargauge")
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit} | more.pop("defaults", {}), "overrides": []},
        "targets": [
            {
                "refId": chr(65 + index),
                "expr": query,
                "legendFormat": legend,
                "instant": instant,
                "datasource": SOURCE,
            }
            for index, (query, legend) in enumerate(queries)
        ],
        **more,
    }


def stat(
    title: str, text: str, query: str, unit: str = "none", legend: str = "", **more: Any
) -> dict[str, Any]:
    """A single number."""
    options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"}
    return panel("stat", title, text, unit, [(query, legend)], options=options, **more)


def graph(
    title: str, text: str, unit: str, queries: list[tuple[str, str]], *, least: float | None = 0
) -> dict[str, Any]:
    """Curves over time."""
    defaults: dict[str, Any] = {"custom": {"fillOpacity": 10, "showPoints": "never"}}
    if least is not None:
        defaults["min"] = least
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return panel("timeseries", title, text, unit, queries, defaults=defaults, options=options)


YES_NO = {
    "mappings": [
        {
            "type": "value",
            "options": {
                "0": {"text": "no", "color": "red", "index": 0},
                "1": {"text": "yes", "color": "green", "index": 1},
            },
        }
    ]
}
UP_DOWN = {
    "mappings": [
        {
            "type": "value",
            "options": {
                "0": {"text": "down", "color": "red", "index": 0},
                "1": {"text": "up", "color": "green", "index": 1},
            },
        }
    ]
}
