"""What it costs that connections pass through the launcher after a frontend's death: before and after, one deployment.

    uv run python scripts/bench_frontdoor.py [--seconds 20] [--repeats 3] [--streams 32] [--json FILE] [--markdown FILE]

Two loads: short answers (8 tokens: connections and requests count) and long ones (256: streamed tokens), each with
a connection of its own for every request. `direct`: the frontend has the public port. `through the launcher`: it was
killed once, and its successor sits behind the launcher's front door.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.chaos.load import Load, bad  # noqa: E402
from tests.support.runs import Run  # noqa: E402

LOADS = {"short": 8, "long": 256}
"""Name to tokens of an answer."""


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def measure(run: Run, tokens: int, streams: int, seconds: float) -> dict[str, float]:
    """One load for so long."""
    launcher, frontend = int(run.status()["pid"]), int(run.process_state("frontend")["pid"])
    with Load(run.url, run.model, streams=streams, tokens=tokens, words=10) as load:
        time.sleep(2)
        before, count, began = (cpu_s(launcher), cpu_s(frontend)), len(load.requests), time.monotonic()
        time.sleep(seconds)
        spent = time.monotonic() - began
        after, done = (cpu_s(launcher), cpu_s(frontend)), len(load.requests) - count
        requests = load.finish()
    waits = sorted(each.ended - each.began for each in requests[count : count + done])
    return {
        "requests_s": done / spent,
        "tokens_s": done * tokens / spent,
        "median_s": statistics.median(waits),
        "p99_s": waits[int(0.99 * len(waits))],
        "launcher_cpu": (after[0] - before[0]) / spent,
        "frontend_cpu": (after[1] - before[1]) / spent,
        "lost": float(len(bad(requests))),
        "rss_mib": psutil.Process(launcher).memory_info().rss / 2**20,
    }


def row(where: str, load: str, streams: int, runs: list[dict[str, float]]) -> dict[str, Any]:
    medians = {name: round(statistics.median(each[name] for each in runs), 3) for name in runs[0]}
    return {"where": where, "load": load, "streams": streams, "repeats": len(runs), **medians}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| answers | path | requests/s | tokens/s | median | p99 | launcher, CPUs | frontend, CPUs | lost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {LOADS[each['load']]} tokens | {each['where']} | {each['requests_s']:.0f} | {each['tokens_s']:.0f} "
        f"| {each['median_s'] * 1000:.0f} ms | {each['p99_s'] * 1000:.0f} ms | {each['launcher_cpu']:.2f} "
        f"| {each['frontend_cpu']:.2f} | {each['lost']:.0f} |"
        for each in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    rows = []
    state = Path(tempfile.mkdtemp(prefix="bf-"))
    # As fast as the simulator can be: the frontend and what is before it are what is measured.
    options = ("--engine", "mocker", "--set", "workers.aggregated.count=2")
    fast = ("--set", "simulation.args.speedup-ratio=50", "--restart-budget", "100")
    with Run("h200-agg", *options, *fast, state=state) as run:
        run.ready()
        for where in ("direct", "through the launcher"):
            for name, tokens in LOADS.items():
                runs = [measure(run, tokens, args.streams, args.seconds) for _ in range(args.repeats)]
                rows.append(row(where, name, args.streams, runs))
                print(json.dumps(rows[-1]), flush=True)
            if where == "direct":
                os.kill(run.process_state("frontend")["pid"], signal.SIGKILL)
                time.sleep(1)
                run.ready()
                time.sleep(3)
    if args.json:
        args.json.write_text(json.dumps({"cpus": os.cpu_count(), "rows": rows}, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(table(rows))


if __name__ == "__main__":
    main()
