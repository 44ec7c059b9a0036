"""Write configs/grafana/gpt-oss-launcher.json.

    python -m scripts.grafana [--check]

The JSON is what people import; here it is what people change. `--check` only says whether the two agree.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .panels import SOURCE, WIDTH
from .rows import rows

OUT = Path(__file__).resolve().parents[2] / "configs" / "grafana" / "gpt-oss-launcher.json"


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, members in rows():
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": _grid(0, top, WIDTH, 1),
            }
        )
        top += 1
        small = all(member["type"] == "stat" for member in members)
        width, height = (WIDTH // 8, 4) if small else (WIDTH // (4 if len(members) % 4 == 0 else 3), 8)
        left = 0
        for member in members:
            if left + width > WIDTH:
                left, top = 0, top + height
            panels.append({**member, "gridPos": _grid(left, top, width, height)})
            left += width
        top += height
    for number, each in enumerate(panels, 1):
        each["id"] = number
    return {
        "uid": "gpt-oss-launcher",
        "title": "gpt-oss launcher",
        "description": "One scrape of the launcher's /metrics: its own figures and those of all its processes.",
        "tags": ["dynamo", "gpt-oss"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("instance", "label_values(launcher_ready, instance)"),
                _variable("worker", 'label_values(launcher_worker_up{instance=~"$instance"}, worker)'),
            ]
        },
        "panels": panels,
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _grid(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def text() -> str:
    """The file as it is committed."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the file, or compare."""
    if "--check" in sys.argv[1:]:
        same = OUT.is_file() and OUT.read_text(encoding="utf-8") == text()
        print(f"{OUT.name} is {'up to date' if same else 'not what python -m scripts.grafana makes'}")
        return 0 if same else 1
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
