"""What a fault costs: the generated bash plan against the launcher, the same faults under the same load, in one run.

    uv run python scripts/bench_chaos.py [--shapes 2P2D,4A] [--streams 32,128] [--faults KILL,STOP,TERM] [--repeats 5]
        [--sides bash,launcher] [--json FILE] [--markdown FILE]

Each repeat of the bash side is a fresh deployment, because nothing there brings a worker back. Simulated workers: the
figures are those of frontend, router, discovery and supervision, not of an engine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launcher.plan.model import Plan  # noqa: E402
from launcher.plan.output import bash  # noqa: E402
from launcher.plan.ports import free_everywhere  # noqa: E402
from tests.chaos.strike import Cost, Side, routed, strike  # noqa: E402
from tests.support.plans import planned  # noqa: E402
from tests.support.runs import Run  # noqa: E402

READY_S = 120.0
SETTLE_S = 3.0
BASH_WATCH_S = 14.0
"""Longer than the ten seconds after which Dynamo's discovery expires a dead worker."""
LAUNCHER_WATCH_S = 60.0
SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "TERM": signal.SIGTERM}


@dataclass(frozen=True, slots=True)
class Shape:
    """`2P2D`, `4P4D` or `4A`."""

    name: str

    @property
    def target(self) -> str:
        return "h200-agg" if self.name.endswith("A") else "sim"

    @property
    def sets(self) -> list[str]:
        if self.name.endswith("A"):
            return [f"workers.aggregated.count={self.name[:-1]}"]
        prefill, decode = self.name.removesuffix("D").split("P")
        return [f"workers.prefill.count={prefill}", f"workers.decode.count={decode}"]

    @property
    def roles(self) -> list[str]:
        return ["aggregated"] if self.name.endswith("A") else ["decode", "prefill"]


@contextlib.contextmanager
def launcher(shape: Shape, python: str) -> Iterator[Side]:
    options = [word for change in shape.sets for word in ("--set", change)]
    state = Path(tempfile.mkdtemp(prefix="bc-"))
    with Run(
        shape.target,
        "--engine",
        "mocker",
        "--restart-budget",
        "1000",
        "--python",
        python,
        *options,
        state=state,
    ) as run:
        run.ready(READY_S)
        yield Side(
            run.url,
            run.model,
            lambda name: int(run.process_state(name)["pid"]),
            lambda name: int(run.process_state(name)["ports"]["rpc"]),
        )


@contextlib.contextmanager
def shell(shape: Shape, python: str, *, migration: bool) -> Iterator[Side]:
    port = next(number for number in range(18600, 18900, 2) if free_everywhere(number))
    with planned(
        shape.target, *shape.sets, engine="mocker", http_port=str(port), http_host="127.0.0.1", base_port="28000",
        python=python,
    ) as held:  # fmt: skip
        plan = held.plan
        script = Path(tempfile.mkdtemp(prefix="bc-")) / "plan.sh"
        text = bash.render(plan)
        # The public recipe sets no limit, which means no migration; the generated plan does.
        script.write_text(text if migration else re.sub(r"--migration-limit \d+", "", text))
    process = subprocess.Popen(
        ["bash", str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        side = Side(
            f"http://127.0.0.1:{port}", plan.model, lambda name: _pid(process, plan, name),
            lambda name: plan.process(name).ports["rpc"],
        )  # fmt: skip
        until = time.monotonic() + READY_S
        while sum(routed(side).values()) < len(plan.workers):
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit("the bash plan did not become ready")
            time.sleep(0.3)
        yield side
    finally:
        _end(process)


def _pid(process: subprocess.Popen[bytes], plan: Plan, name: str) -> int:
    wanted = str(plan.process(name).ports["system"])
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.environ().get("DYN_SYSTEM_PORT") == wanted and "dynamo" in " ".join(child.cmdline()):
                return child.pid
    raise LookupError(name)


def _end(process: subprocess.Popen[bytes]) -> None:
    """A killed worker leaves the script waiting, so its children are ended by name of their parent."""
    with contextlib.suppress(psutil.Error):
        everything = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for each in everything:
            with contextlib.suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(everything, timeout=10)
    process.wait(10)


def row(side: str, shape: Shape, role: str, fault: str, streams: int, costs: list[Cost]) -> dict[str, Any]:
    def median(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return round(statistics.median(known), 3) if len(known) * 2 > len(values) else None

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
        "out_s": median([cost.out_s for cost in costs]),
        "full_s": median([cost.full_s for cost in costs]),
        "longest_silence_s": round(max(cost.gap_s for cost in costs), 2),
    }


def measure(shape: Shape, streams: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All faults on one shape at one load."""

    def hit(side: Side, name: str, fault: str, watch_s: float) -> Cost:
        time.sleep(SETTLE_S)
        words = 200 if name.startswith("prefill") else 60
        return strike(side, name, SIGNALS[fault], streams=streams, words=words, watch_s=watch_s, stall_s=20)

    for role in shape.roles:
        for fault in args.faults.split(","):
            if "bash" in args.sides:
                costs = []
                for _ in range(args.repeats):
                    with shell(shape, args.python, migration=not args.no_migration) as side:
                        costs.append(hit(side, f"{role}-0", fault, BASH_WATCH_S))
                yield row("bash", shape, role, fault, streams, costs)
    if "launcher" in args.sides:
        with launcher(shape, args.python) as side:
            for role in shape.roles:
                for fault in args.faults.split(","):
                    costs = [
                        hit(side, f"{role}-{number % 2}", fault, LAUNCHER_WATCH_S)
                        for number in range(args.repeats)
                    ]
                    yield row("launcher", shape, role, fault, streams, costs)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| shape | role | fault | streams | side | requests | failed | cut | out of routing | full again | silence |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in sorted(
        rows, key=lambda each: (each["shape"], each["streams"], each["role"], each["fault"], each["side"])
    ):

        def seconds(name: str, each: dict[str, Any] = each) -> str:
            return "never" if each[name] is None else f"{each[name]:.2f} s"

        lines.append(
            f"| {each['shape']} | {each['role']} | {each['fault']} | {each['streams']} | {each['side']} "
            f"| {each['requests']} | {', '.join(map(str, each['failed']))} | {', '.join(map(str, each['cut']))} "
            f"| {seconds('out_s')} | {seconds('full_s')} | {each['longest_silence_s']} s |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="2P2D,4P4D,4A")
    parser.add_argument("--streams", default="32,128")
    parser.add_argument("--faults", default="KILL,STOP,TERM")
    parser.add_argument("--repeats", type=int, default=5)
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
            for each in measure(Shape(shape), int(streams), args):
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
