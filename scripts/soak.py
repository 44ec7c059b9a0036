"""A soak: a random fault every ten seconds under load, and a look at what piles up in the launcher.

    uv run python scripts/soak.py [--minutes 30] [--every 10] [--streams 16] [--target sim] [--seed N] [--json FILE]

Faults: kill -9, SIGTERM, SIGSTOP of a worker, kill -9 of the frontend or of the event broker, a restart on request, a
freeze of all for five seconds. Exit code 1 where zombies, descriptors or memory piled up, or the deployment was not
whole at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.chaos.load import Load, tally  # noqa: E402
from tests.support.runs import Run  # noqa: E402

FREEZE_S = 5.0
FD_SLACK = 20
RSS_SLACK_MIB = 40.0
"""What the launcher may grow by: the rings of kept lines and of figures fill up in the first minutes."""


def fault(run: Run, chance: random.Random) -> str:
    """Do something bad; returns what."""
    states = {
        state["name"]: state for state in run.status()["processes"] if state["pid"] and state["healthy"]
    }
    workers = [name for name, state in states.items() if state["role"] not in ("frontend", "helper")]
    kind = chance.choice(["KILL", "KILL", "TERM", "STOP", "frontend", "broker", "restart", "freeze"])
    if kind == "freeze":
        everything = [psutil.Process(run.process.pid), *run.descendants()]
        for process in everything:
            process.suspend()
        time.sleep(FREEZE_S)
        for process in everything:
            process.resume()
        return kind
    names = {"frontend": ["frontend"], "broker": ["events"]}.get(kind, workers)
    names = [name for name in names if name in states]
    if not names:
        return "nothing (all are down)"
    name = chance.choice(names)
    if kind == "restart":
        subprocess.Popen(
            [sys.executable, "-m", "launcher", "restart", name, "--state-dir", str(run.state)], cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    else:
        number = getattr(signal, f"SIG{kind}") if kind in ("KILL", "TERM", "STOP") else signal.SIGKILL
        try:
            os.kill(states[name]["pid"], number)
        except ProcessLookupError:
            return f"nothing ({name} has just gone)"
    return f"{kind} {name}"


def look(run: Run) -> dict[str, float]:
    """The launcher's own size."""
    process = psutil.Process(int(run.status()["pid"]))
    mine = [process, *process.children(recursive=True)]
    return {
        "fds": process.num_fds(),
        "rss_mib": round(process.memory_info().rss / 2**20, 1),
        "threads": process.num_threads(),
        "zombies": sum(1 for each in mine if each.is_running() and each.status() == psutil.STATUS_ZOMBIE),
        "processes": len(mine),
        "shm": len(os.listdir("/dev/shm")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--target", default="sim")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    faults: Counter[str] = Counter()
    samples: list[dict[str, float]] = []
    with Run(
        args.target,
        "--engine",
        "mocker",
        "--restart-budget",
        "1000",
        state=Path(tempfile.mkdtemp(prefix="so-")),
    ) as run:
        run.ready(120)
        with Load(run.url, run.model, streams=args.streams, tokens=64) as load:
            until = time.monotonic() + 60 * args.minutes
            while time.monotonic() < until:
                time.sleep(args.every)
                if run.process.poll() is not None:
                    print(run.log[-20000:], file=sys.stderr)
                    raise SystemExit(f"the launcher ended with {run.process.returncode}")
                samples.append(look(run))
                what = fault(run, chance)
                faults[what.partition(" ")[0]] += 1
                print(
                    f"{time.strftime('%T')} {what}  {samples[-1]}  {dict(tally(load.requests))}", flush=True
                )
            requests = load.finish()
        settle = time.monotonic() + 60
        while not run.status()["ready"] or run.status()["degraded"]:
            if time.monotonic() > settle:
                break
            time.sleep(0.5)
        time.sleep(3)
        samples.append(look(run))
        whole = run.status()["ready"] and not run.status()["degraded"]
        code = run.stop()
    first, last = samples[min(2, len(samples) - 1)], samples[-1]
    report = {
        "minutes": args.minutes,
        "faults": dict(faults),
        "requests": dict(tally(requests)),
        "first": first,
        "last": last,
        "whole_at_the_end": whole,
        "exit_code": code,
    }
    leaks = [
        name
        for name, slack in (
            ("fds", FD_SLACK),
            ("rss_mib", RSS_SLACK_MIB),
            ("zombies", 0),
            ("threads", 8),
            ("shm", 8),
        )
        if last[name] - first[name] > slack
    ]
    report["leaks"] = leaks
    print(json.dumps(report, indent=1))
    if args.json:
        args.json.write_text(json.dumps(report | {"samples": samples}, indent=1) + "\n")
    raise SystemExit(bool(leaks) or not whole or code != 0)


if __name__ == "__main__":
    main()
