"""Record which metrics a running deployment exports, for the tests that compare names.

    python scripts/capture_metrics.py http://127.0.0.1:9000 > tests/observe/data/sim_metrics.txt

Kept of each family: its comments, and of each of its samples the first per role. Send some requests before.
"""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator

from launcher.observe.exposition import parse


def reduced(page: str) -> Iterator[str]:
    """The page's families with few samples each."""
    for family in parse(page).families.values():
        yield f"# TYPE {family.name} {family.type}"
        seen = set()
        for name, labels, value in family.samples:
            role = next((pair for pair in labels.split(",") if pair.startswith("role=")), "")
            if (name, role) not in seen:
                seen.add((name, role))
                yield f"{name}{{{labels}}} {value}"


def main() -> None:
    with urllib.request.urlopen(sys.argv[1].rstrip("/") + "/metrics") as response:
        print("\n".join(reduced(response.read().decode())))


if __name__ == "__main__":
    main()
