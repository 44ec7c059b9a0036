"""How throughput and the router's cost grow with the number of workers behind one frontend; simulated workers.

    uv run python scripts/bench_workers.py [--workers 8,32,64,128] [--seconds 20] [--json FILE]

One launcher, aggregated simulated workers, KV-aware router with events. The load is the same for every size (--clients
streams at a time, 32 tokens each), so that what changes is what the number of workers costs: CPU of the frontend for a
request, memory, time to ready. All of it runs on this machine: its cores are the limit long before the router is, and
each row says how busy they were.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.load import Load  # noqa: E402
from tests.support.runs import Run  # noqa: E402

START_S = 300.0


def memory_mib(processes: list[psutil.Process]) -> float:
    """Proportional share of all of them, MiB: what they share counts once."""
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 2**20


def measure(workers: int, seconds: float, clients: int) -> dict[str, Any]:
    """One size."""
    with tempfile.TemporaryDirectory(prefix="bw-") as state:
        options = [
            "--set", "workers.prefill.count=0", "--set", "workers.decode.count=0",
            "--set", f"workers.aggregated.count={workers}", "--set", f"deadlines.start_s={START_S:g}",
            "--set", "proofs.kv_routing=warn",
        ]  # fmt: skip
        began = time.monotonic()
        with Run("sim", *options, state=Path(state)) as run:
            run.ready(START_S)
            ready_s = time.monotonic() - began
            frontend = psutil.Process(run.process_state("frontend")["pid"])
            tree = [psutil.Process(run.process.pid), *run.descendants()]
            mib = memory_mib(tree)
            idle = cpu(frontend)
            time.sleep(5)
            idle_share = (cpu(frontend) - idle) / 5
            psutil.cpu_percent()
            with Load([run.url], run.model, concurrency=clients, tokens=32) as load:
                time.sleep(3)
                before, at = cpu(frontend), load.now
                time.sleep(seconds)
                spent, until = cpu(frontend) - before, load.now
                busy = psutil.cpu_percent()
            counted = [each for each in load.requests if at <= each.ended <= until and not each.error]
            run.process.send_signal(signal.SIGTERM)
            run.wait(120)
    took = until - at
    return {
        "workers": workers,
        "clients": clients,
        "ready_s": round(ready_s, 1),
        "memory_mib": round(mib),
        "requests_s": round(len(counted) / took, 1),
        "tokens_s": round(32 * len(counted) / took),
        "request_p50_ms": round(1000 * statistics.median(each.ended - each.began for each in counted)),
        "failed": len(load.failures()),
        "frontend_cpu_ms_per_request": round(1000 * spent / max(1, len(counted)), 2),
        "frontend_idle_cpu_percent": round(100 * idle_share, 1),
        "machine_busy_percent": round(busy),
    }


def cpu(process: psutil.Process) -> float:
    """CPU seconds so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", default="8,32,64,128")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    page: dict[str, Any] = {"commit": commit.stdout.strip(), "cores": os.cpu_count(), "results": []}
    for workers in map(int, args.workers.split(",")):
        page["results"].append(measure(workers, args.seconds, args.clients))
        print(json.dumps(page["results"][-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(page, indent=1) + "\n")


if __name__ == "__main__":
    main()
