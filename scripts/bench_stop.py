"""What SIGTERM costs a deployment under load: the generated bash plan against the launcher, as PID 1 and not.

    uv run python scripts/bench_stop.py [--shapes 2P2D] [--streams 32,128] [--repeats 5] [--sides bash,launcher]
        [--json FILE] [--markdown FILE]

Streams last some seconds each. `in flight`: streams that were open at the SIGTERM, and how many of them did not end
whole. `refused early`: new requests of the launcher's pause (a load balancer still sends them) that failed.
Where the deployment is still there after the grace period it is killed, as a kubelet does. Needs root for PID 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.chaos.load import Load  # noqa: E402
from tests.chaos.sides import NAMESPACE, Shape, launcher, shell  # noqa: E402
from tests.chaos.strike import Side  # noqa: E402

PAUSE_S = 5.0
"""The launcher's default between SIGTERM and the first step of its drain, for load balancers."""
EARLY_S = PAUSE_S - 0.5
"""A request that begins within the pause and arrives after it is not early."""
GRACE_S = 60.0
TOKENS = 800


@contextlib.contextmanager
def deployment(kind: str, shape: Shape, python: str, *, first: bool) -> Iterator[tuple[Side, psutil.Process]]:
    """A ready deployment, and the process that a kubelet or a shell would signal."""
    prefix = NAMESPACE if first else ()
    if kind == "bash":
        with shell(shape, python, prefix=prefix) as (side, process):
            yield side, _init(process.pid, first)
    else:
        # The targets of real engines have this pause; the simulated ones end at once unless told.
        with launcher(shape, python, "--set", f"deadlines.pause_s={PAUSE_S}", prefix=prefix) as (side, run):
            yield side, _init(run.process.pid, first)


def _init(pid: int, first: bool) -> psutil.Process:
    process = psutil.Process(pid)
    return process.children()[0] if first else process


def stop(kind: str, shape: Shape, streams: int, python: str, *, first: bool) -> dict[str, float]:
    """One deployment's end under load."""
    with deployment(kind, shape, python, first=first) as (side, process):
        everything = [process, *process.children(recursive=True)]
        with Load(side.url, side.model, streams=streams, tokens=TOKENS, stall_s=90, again_s=0.2) as load:
            time.sleep(6)
            at = time.monotonic()
            process.send_signal(signal.SIGTERM)
            gone = None
            while time.monotonic() < at + GRACE_S:
                if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                    gone = time.monotonic() - at
                    break
                time.sleep(0.05)
            left = [
                each for each in everything if each.is_running() and each.status() != psutil.STATUS_ZOMBIE
            ]
            for each in left:
                with contextlib.suppress(psutil.Error):
                    each.kill()
            requests = load.finish()
    flying = [each for each in requests if each.began < at <= each.ended]
    early = [each for each in requests if at <= each.began < at + EARLY_S]
    return {
        "in_flight": len(flying),
        "cut": sum(1 for each in flying if not each.ok or each.tokens < TOKENS),
        "early": len(early),
        "refused_early": sum(1 for each in early if not each.ok),
        "gone_s": round(gone, 2) if gone is not None else -1,
        "left_behind": len(left),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: medians, and the worst in brackets."""
    lines = [
        "| shape | streams | as | side | in flight | cut | new within 4.5 s | refused early | gone after | left |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in rows:

        def figure(name: str, each: dict[str, Any] = each) -> str:
            values = [found[name] for found in each["runs"]]
            return f"{statistics.median_high(values):g} ({max(values):g})"

        gone = [found["gone_s"] for found in each["runs"]]
        ended = (
            "killed after 60 s"
            if min(gone) < 0
            else f"{statistics.median_high(gone):.1f} s ({max(gone):.1f} s)"
        )
        lines.append(
            f"| {each['shape']} | {each['streams']} | {'PID 1' if each['first'] else 'a process'} | {each['side']} "
            f"| {figure('in_flight')} | {figure('cut')} | {figure('early')} | {figure('refused_early')} | {ended} "
            f"| {figure('left_behind')} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="2P2D")
    parser.add_argument("--streams", default="32,128")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sides", default="bash,launcher")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the Dynamo release to run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for shape in args.shapes.split(","):
        for streams in map(int, args.streams.split(",")):
            for first in (False, True):
                for kind in args.sides.split(","):
                    runs = [
                        stop(kind, Shape(shape), streams, args.python, first=first)
                        for _ in range(args.repeats)
                    ]
                    rows.append(
                        {"shape": shape, "streams": streams, "first": first, "side": kind, "runs": runs}
                    )
                    print(json.dumps(rows[-1]), flush=True)
                    if args.json:
                        facts = {"cpus": os.cpu_count(), "python": args.python, "rows": rows}
                        args.json.write_text(json.dumps(facts, indent=1) + "\n")
                    if args.markdown:
                        args.markdown.write_text(table(rows))


if __name__ == "__main__":
    main()
