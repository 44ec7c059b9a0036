"""Is a healthy process ever taken for dead? Half an hour of loading, or of more load than the machine can take.

    uv run python scripts/false_alarms.py loading|load [--minutes 30] [--streams 256] [--json FILE]

loading: real workers of Dynamo's simulator that take that long to load. (They answer their health page meanwhile, and
take requests that they answer in the end: worse than an engine.) They must become ready, and nothing may be restarted.
load: 2P2D under so many streams at a time; of a stream that is silent for a minute it is kept who had it. Exit code 1
where a process was restarted or called hung.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.chaos.load import Load, Request, tally  # noqa: E402
from tests.support.runs import Run  # noqa: E402

ALARMS = (" hung: ", " restarts in ", " exited: ")
UNWELL = "not ready: "
SILENT_S = 60.0
KEPT = 40
"""Of lost requests, in the report."""
IN_HAND = r"\w*(inflight|in_flight|queued|running|waiting)\w*(\{|\s)"
"""Metrics of the frontend and the workers that count the requests they have."""


def loading(run: Run, minutes: float) -> dict[str, Any]:
    began = time.monotonic()
    run.ready(60 * minutes + 300)
    return {"ready_after_s": round(time.monotonic() - began, 1)}


def loaded(run: Run, minutes: float, streams: int) -> dict[str, Any]:
    run.ready(120)
    began = time.monotonic()
    least, count = float("inf"), 0
    pictures: list[dict[str, Any]] = []
    with Load(run.url, run.model, streams=streams, tokens=64, words=300, stall_s=300) as load:
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            time.sleep(30)
            least, count = min(least, len(load.requests) - count), len(load.requests)
            print(time.strftime("%T"), dict(tally(load.requests)), os.getloadavg()[0], flush=True)
            silent = load.silent(SILENT_S)
            if silent and len(pictures) < 12:
                pictures.append(picture(run, silent))
                print(json.dumps(pictures[-1]), flush=True)
        requests = load.finish(300)
    return {
        "streams": streams,
        "requests": dict(tally(requests)),
        "fewest_requests_in_30_s": least,
        "longest_silence_of_a_stream_s": round(max(each.gap_s for each in requests), 1),
        "lost": [
            {
                "began_s": round(each.began - began, 1),
                "ended_s": round(each.ended - began, 1),
                "tokens": each.tokens,
                "outcome": each.outcome,
                "detail": each.detail,
            }
            for each in requests
            if not each.ok
        ][:KEPT],
        "silent": pictures,
    }


def picture(run: Run, silent: list[Request]) -> dict[str, Any]:
    """Who has the requests that nothing is heard of."""
    now = time.monotonic()
    _, text = run.admin("/metrics")
    held = [line for line in text.splitlines() if re.match(IN_HAND, line) and not line.endswith(" 0")]
    return {
        "silent": len(silent),
        "silent_s": sorted({round(now - each.heard) for each in silent}),
        "with_tokens": sum(each.tokens > 0 for each in silent),
        "in_hand": held,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["loading", "load"])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    slow: tuple[str, ...] = ()
    if args.kind == "loading":
        # The deadline of the targets of real engines; that of the simulated ones is shorter than this load.
        slow = (
            "--set",
            f"simulation.args.startup-time={60 * args.minutes:g}",
            "--set",
            "deadlines.start_s=2700",
        )
    with Run("sim", "--engine", "mocker", *slow, state=Path(tempfile.mkdtemp(prefix="fa-"))) as run:
        waits = args.kind == "loading"
        found = loading(run, args.minutes) if waits else loaded(run, args.minutes, args.streams)
        restarts = run.status()["restarts"]
        code = run.stop()
    lines = [line for line in run.lines if line.startswith("launcher")]
    stop = next((place for place, line in enumerate(lines) if "stopping" in line), len(lines))
    alarms = [line for line in lines[:stop] if any(word in line for word in ALARMS)]
    report = {
        "kind": args.kind,
        "minutes": args.minutes,
        "cpus": os.cpu_count(),
        "load_average_at_the_end": round(os.getloadavg()[1], 1),
        **found,
        "restarts": restarts,
        "alarms": alarms,
        "not_ready": [line for line in lines[:stop] if UNWELL in line],
        "exit_code": code,
    }
    print(json.dumps(report, indent=1))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    raise SystemExit(bool(alarms) or restarts != 0)


if __name__ == "__main__":
    main()
