"""A soak: a random fault every ten seconds under load; what it cost and why, and what piles up in the launcher.

    uv run python scripts/soak.py [--minutes 30] [--every 10] [--streams 16] [--target sim] [--seed N] [--json FILE]
        [--log FILE] [--python INTERPRETER]

Faults: kill -9, SIGTERM, SIGSTOP of a worker, kill -9 of the frontend or of the event broker, a restart on request, a
freeze of all for five seconds. Every lost request is explained by a rule of `tests/chaos/losses.py`, or counts as
unexplained. Exit code 1 where one is unexplained, zombies, descriptors or memory piled up, the deployment was not whole
at the end, or the launcher ended before it was asked to; what it said last is then printed, `--log` has all of it.
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
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.chaos.load import Load, Request, bad, tally  # noqa: E402
from tests.chaos.losses import Fault, Look, explain  # noqa: E402
from tests.chaos.strike import Side, routed  # noqa: E402
from tests.support.runs import Run  # noqa: E402

FREEZE_S = 5.0
LOOK_S = 0.25
PIECES = 2000
"""Looks that are kept: eight minutes, more than any request lasts."""
SLACK = {"fds": 20.0, "rss_mib": 40.0, "zombies": 0.0, "threads": 8.0, "shm": 8.0}
"""What the launcher may grow by: the rings of kept lines and of figures fill up in the first minutes."""
FOREIGN = ("sm_segment.", "vader_segment.")
"""Shared memory of Open MPI: none of a simulated deployment, but of other jobs on a machine that is shared."""
WORKERS = ("prefill", "decode", "aggregated")


class Watcher(threading.Thread):
    """Looks at launcher and frontend all the time, so that a loss can be explained later."""

    def __init__(self, run: Run) -> None:
        super().__init__(name="watcher", daemon=True)
        self._run = run
        self._side = Side(run.url, run.model, lambda name: 0, lambda name: 0)
        self.looks: deque[Look] = deque(maxlen=PIECES)
        self.blind = 0
        """Looks at which the launcher did not answer."""
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(LOOK_S):
            try:
                states = self._run.status()["processes"]
            except (AssertionError, ValueError):
                self.blind += 1
                continue
            healthy = {
                each["name"]: each["role"] for each in states if each["role"] in WORKERS and each["healthy"]
            }
            self.looks.append(Look(time.monotonic(), healthy, routed(self._side, timeout_s=1.0)))


def fault(run: Run, chance: random.Random) -> Fault | None:
    """Do something bad; returns what, None where there was nobody to do it to."""
    states = {
        state["name"]: state for state in run.status()["processes"] if state["pid"] and state["healthy"]
    }
    workers = [name for name, state in states.items() if state["role"] in WORKERS]
    kind = chance.choice(["KILL", "KILL", "TERM", "STOP", "frontend", "broker", "restart", "freeze"])
    at = time.monotonic()
    if kind == "freeze":
        everything = [psutil.Process(run.process.pid), *run.descendants()]
        for process in everything:
            process.suspend()
        time.sleep(FREEZE_S)
        for process in everything:
            process.resume()
        return Fault(at, kind)
    names = {"frontend": ["frontend"], "broker": ["events"]}.get(kind, workers)
    names = [name for name in names if name in states]
    if not names:
        return None
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
            return None
        if kind == "frontend":
            return Fault(at, kind, name, name, gone(states[name]["pid"]))
    return Fault(at, kind, name, states[name]["role"])


def gone(pid: int) -> float:
    """Wait for the end of a process that was killed, a second at most; how long that took."""
    began = time.monotonic()
    while Path(f"/proc/{pid}").exists() and time.monotonic() < began + 1:
        time.sleep(0.002)
    return time.monotonic() - began


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
        "shm": sum(1 for name in os.listdir("/dev/shm") if not name.startswith(FOREIGN)),
    }


def wall(at: float) -> str:
    """A moment of the monotonic clock as the log has it."""
    return time.strftime("%T", time.localtime(time.time() - time.monotonic() + at))


class Vanished(Exception):
    """The launcher ended although nobody asked it to; the text says how."""


def whereabouts(run: Run) -> str:
    """How the launcher ended: exit code, what it said last, whether the kernel killed something for want of memory."""
    try:
        code: object = run.process.wait(5)
    except subprocess.TimeoutExpired:
        code = "none, it runs but does not answer"
    events = Path("/sys/fs/cgroup/memory.events")
    memory = " ".join(events.read_text().split()) if events.exists() else "unknown"
    return f"exit code {code}; memory events: {memory}; it said last:\n" + "\n".join(run.lines[-60:])


def soak(run: Run, args: argparse.Namespace, report: dict[str, Any]) -> None:
    """The faults under load; what is known so far is in `report` at any time."""
    chance = random.Random(args.seed)
    faults: list[Fault] = []
    samples: list[dict[str, float]] = report["samples"]
    why: Counter[str] = Counter()
    charged: set[tuple[float, int]] = set()
    judged = 0
    watcher = Watcher(run)
    watcher.start()

    def judge(requests: list[Request]) -> None:
        nonlocal judged
        looks = list(watcher.looks)  # at once: the other thread goes on adding
        roles = sorted({role for each in looks for role in each.healthy.values()})
        for request in bad(requests[judged:]):
            rule = explain(request, faults, looks, roles, charged)
            why[rule or "unexplained"] += 1
            if not rule:
                report["unexplained"].append(
                    {
                        "began": wall(request.began),
                        "ended": wall(request.ended),
                        "client": request.client,
                        "outcome": request.outcome,
                        "detail": request.detail,
                        "tokens": request.tokens,
                        "faults": [
                            f"{wall(each.at)} {each.kind} {each.name} {each.at - request.began:+.3f} s after it began"
                            for each in faults
                            if request.began - 15 < each.at < request.ended
                        ],
                    }
                )
        judged = len(requests)
        report["lost"] = dict(why)
        report["requests"] = dict(tally(requests))

    with Load(run.url, run.model, streams=args.streams, tokens=64) as load:
        until = time.monotonic() + 60 * args.minutes
        while time.monotonic() < until:
            time.sleep(args.every)
            if run.process.poll() is not None:
                raise Vanished(whereabouts(run))
            try:
                samples.append(look(run))
                what = fault(run, chance)
            except (AssertionError, psutil.Error) as error:
                raise Vanished(f"{type(error).__name__}: {error}; {whereabouts(run)}") from error
            faults += [what] if what is not None else []
            report["faults"] = dict(Counter(each.kind for each in faults))
            judge(list(load.requests))
            told = f"{what.kind} {what.name}" if what else "nothing"
            print(
                f"{wall(time.monotonic())} {told}  {samples[-1]}  {report['requests']} {dict(why)}",
                flush=True,
            )
        requests = load.finish()
    settle = time.monotonic() + 60
    while not run.status()["ready"] or run.status()["degraded"]:
        if time.monotonic() > settle:
            break
        time.sleep(0.5)
    time.sleep(3)
    watcher.over.set()
    judge(requests)
    samples.append(look(run))
    status = run.status()
    report["whole_at_the_end"] = status["ready"] and not status["degraded"]
    report["restarts"] = status["restarts"]
    report["healed"] = status["discovery"]["healed"]
    report["looks_without_an_answer"] = watcher.blind


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--target", default="sim")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the Dynamo release to run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "soak.log")
    args = parser.parse_args()
    report: dict[str, Any] = {
        "minutes": args.minutes,
        "every_s": args.every,
        "streams": args.streams,
        "seed": args.seed,
        "cpus": os.cpu_count(),
        "unexplained": [],
        "samples": [],
        "whole_at_the_end": False,
        "exit_code": None,
    }
    run = Run(
        args.target, "--engine", "mocker", "--restart-budget", "1000", "--python", args.python,
        state=Path(tempfile.mkdtemp(prefix="so-")),
    )  # fmt: skip
    try:
        with run:
            run.ready(120)
            soak(run, args, report)
            report["exit_code"] = run.stop()
    except Vanished as error:
        report["vanished"] = str(error)
    finally:
        args.log.write_text(run.log + "\n")
    samples = report["samples"]
    if samples:
        first, last = samples[min(2, len(samples) - 1)], samples[-1]
        report["leaks"] = [name for name, slack in SLACK.items() if last[name] - first[name] > slack]
        report["samples"] = samples[:: max(1, len(samples) // 30)] + samples[-1:]
    bad_end = not report["whole_at_the_end"] or report["exit_code"] != 0
    report["verdict"] = "failed" if bad_end or report["unexplained"] or report.get("leaks") else "passed"
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report | {"samples": len(samples)}, indent=1))
    print(f"the launcher's log: {args.log}")
    raise SystemExit(report["verdict"] != "passed")


if __name__ == "__main__":
    main()
