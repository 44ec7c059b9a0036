"""What a fault costs: the generated bash plan against the launcher, the same faults under the same load, in one run.

    uv run python scripts/bench_chaos.py [--shapes 2P2D,4A] [--streams 32,128] [--faults KILL,STOP,TERM] [--repeats 5]
        [--sides bash,launcher] [--json FILE] [--markdown FILE]

Each repeat of the bash side is a fresh deployment, because nothing there brings a worker back. Simulated workers: the
figures are those of frontend, router, discovery and supervision, not of an engine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.chaos.sides import Shape, launcher, shell  # noqa: E402
from tests.chaos.strike import Cost, Side, strike  # noqa: E402

SETTLE_S = 2.0
BASH_WATCH_S = 16.0
"""Longer than the twelve seconds after which Dynamo's discovery has expired a dead worker at the latest."""
LAUNCHER_WATCH_S = 60.0
SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "TERM": signal.SIGTERM}


def row(side: str, shape: Shape, role: str, fault: str, streams: int, costs: list[Cost]) -> dict[str, Any]:
    def figures(values: list[float | None]) -> dict[str, Any]:
        known = [value for value in values if value is not None]
        return {
            # What did not happen within the watch is later than anything that did.
            "median": round(statistics.median_high(known), 3) if 2 * len(known) > len(values) else None,
            "worst": round(max(known), 3) if len(known) == len(values) else None,
        }

    return {
        "side": side,
        "shape": shape.name,
        "role": role,
        "fault": f"SIG{fault}",
        "streams": streams,
        "repeats": len(costs),
        "requests": sum(len(cost.requests) for cost in costs),
        "failed": [cost.failed for cost in costs],
        "cut": [cost.cut for cost in costs],
        "out": figures([cost.out_s for cost in costs]),
        "full": figures([cost.full_s for cost in costs]),
        "lost_until_s": round(max(cost.lost_until_s for cost in costs), 1),
        "longest_silence_s": round(max(cost.gap_s for cost in costs), 2),
    }


def measure(shape: Shape, streams: int, repeats: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All faults on one shape at one load."""

    def hit(side: Side, name: str, fault: str, watch_s: float, *, healed: bool) -> Cost:
        time.sleep(SETTLE_S)
        words = 200 if name.startswith("prefill") else 60
        return strike(
            side,
            name,
            SIGNALS[fault],
            streams=streams,
            words=words,
            watch_s=watch_s,
            stall_s=20,
            healed=healed,
        )

    if "launcher" in args.sides:
        with launcher(shape, args.python) as (side, _):
            for role in shape.roles:
                for fault in args.faults.split(","):
                    costs = [
                        hit(side, f"{role}-{number % 2}", fault, LAUNCHER_WATCH_S, healed=True)
                        for number in range(repeats)
                    ]
                    yield row("launcher", shape, role, fault, streams, costs)
    for role in shape.roles:
        for fault in args.faults.split(","):
            if "bash" in args.sides:
                costs = []
                for _ in range(min(repeats, args.bash_repeats or repeats)):
                    with shell(shape, args.python, migration=not args.no_migration) as (side, _):
                        # Nothing brings the worker back: once it is out of routing there is nothing to wait for.
                        costs.append(hit(side, f"{role}-0", fault, BASH_WATCH_S, healed=False))
                yield row("bash", shape, role, fault, streams, costs)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: medians, and the worst in brackets."""
    lines = [
        "| shape | streams | role | fault | side | requests | failed | cut | losses end after "
        "| out of routing | full again | silence |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]

    def seconds(found: dict[str, Any]) -> str:
        if found["median"] is None:
            return "never"
        worst = "never" if found["worst"] is None else f"{found['worst']:.2f} s"
        return f"{found['median']:.2f} s ({worst})"

    def counts(found: list[int]) -> str:
        return f"{statistics.median_high(found)} ({max(found)})"

    lines += [
        f"| {each['shape']} | {each['streams']} | {each['role']} | {each['fault']} | {each['side']} "
        f"| {each['requests']} in {each['repeats']} | {counts(each['failed'])} | {counts(each['cut'])} "
        f"| {each['lost_until_s']} s | {seconds(each['out'])} | {seconds(each['full'])} "
        f"| {each['longest_silence_s']} s |"
        for each in sorted(
            rows, key=lambda each: (each["shape"], each["streams"], each["role"], each["fault"], each["side"])
        )
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="2P2D,4P4D,4A")
    parser.add_argument("--streams", default="32,128")
    parser.add_argument("--faults", default="KILL,STOP,TERM")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--fewer", type=int, default=0, help="repeats where 4P4D meets 128 streams; 0: as many"
    )
    parser.add_argument(
        "--bash-repeats", type=int, default=0, help="at most so many of the bash side; 0: as many"
    )
    parser.add_argument("--sides", default="bash,launcher")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the Dynamo release to run")
    parser.add_argument(
        "--no-migration", action="store_true", help="bash without --migration-limit, as the recipe"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for shape in args.shapes.split(","):
        for streams in args.streams.split(","):
            large = shape == "4P4D" and streams == "128"
            repeats = args.fewer if large and args.fewer else args.repeats
            for each in measure(Shape(shape), int(streams), repeats, args):
                rows.append(each)
                print(json.dumps(each), flush=True)
                if args.json:
                    facts = {
                        "cpus": os.cpu_count(),
                        "load": os.getloadavg()[0],
                        "python": args.python,
                        "rows": rows,
                    }
                    args.json.write_text(json.dumps(facts, indent=1) + "\n")
                if args.markdown:
                    args.markdown.write_text(table(rows))


if __name__ == "__main__":
    main()
