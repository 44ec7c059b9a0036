"""How long until a worker that hangs is out of routing, and taken for dead: each kind of hang, several times.

    uv run python scripts/bench_hangs.py [--repeats 3] [--kinds SIGSTOP,stuck-loop,...] [--json FILE] [--markdown FILE]

With the defaults that a deployment has. Real Dynamo processes where a hang can be made from outside; where only an
engine on a GPU could, a child that does what that engine does (says so in its log, loses a rank, stops answering)
under the real supervisor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launcher.engines.vllm import FATAL  # noqa: E402
from launcher.plan.model import Http, Ranks  # noqa: E402
from launcher.supervise.events import Event, Kind  # noqa: E402
from launcher.supervise.hooks import Hooks  # noqa: E402
from launcher.supervise.logpump import LogPump  # noqa: E402
from launcher.supervise.logwriter import LogWriter  # noqa: E402
from launcher.supervise.supervisor import Supervisor  # noqa: E402
from tests.chaos.load import Load, bad  # noqa: E402
from tests.chaos.strike import Side, listed  # noqa: E402
from tests.supervise.conftest import free_port, plan_of, process, python, soon  # noqa: E402
from tests.support.runs import Run  # noqa: E402

VOCABULARY = os.environ.get("TIKTOKEN_ENCODINGS_BASE", str(ROOT.parent / "shared" / "harmony"))
INSIDE = f"simulation.env.PYTHONPATH={ROOT / 'tests/chaos/inside'}:{ROOT}"
LIMIT_S = 200.0
REAL = {
    "SIGSTOP": (signal.SIGSTOP, "mocker", 0, "SIGSTOP under 16 streams"),
    "stuck-loop": (signal.SIGUSR2, "echo", 0, "event loop stuck, idle"),
    "stuck-loop-load": (signal.SIGUSR2, "echo", 16, "event loop stuck, under 16 streams"),
    "failing": (signal.SIGUSR1, "echo", 0, "engine fails every request, idle"),
}
"""Signal, engine, streams (0: idle), in words."""
QUIET = """
import os, signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(os.getpid(), flush=True)
mute = []
signal.signal(signal.SIGUSR1, lambda *_: mute.append(1))
kept = []
while True:
    peer, _ = server.accept()
    if mute:
        kept.append(peer)
        continue
    peer.recv(4096)
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    peer.close()
"""
SAYS = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: print("vllm.v1.engine.exceptions.EngineDeadError: EngineCore ..."))
print(os.getpid(), flush=True)
while True:
    time.sleep(1)
"""
TREE = """
import os, subprocess, sys, time
ranks = [subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(1000)", "rank-server"]) for _ in range(4)]
print(ranks[0].pid, flush=True)
time.sleep(1000)
"""
FAKE = {
    "mute": "health page accepts and does not answer",
    "log": "EngineDeadError in the log",
    "rank": "one of four ranks (or the engine core) is gone",
}


def real(kind: str, repeats: int) -> Iterator[dict[str, float | None]]:
    """A worker of a running deployment hangs, again and again."""
    number, engine, streams, _ = REAL[kind]
    state = Path(tempfile.mkdtemp(prefix="bh-"))
    options = ("--engine", engine, "--restart-budget", "1000", "--set", INSIDE)
    with Run("sim", *options, state=state, TIKTOKEN_ENCODINGS_BASE=VOCABULARY) as run:
        run.ready()
        side = Side(run.url, run.model, lambda name: 0, lambda name: 0)
        settle_s = 65 if kind == "failing" else 5  # errors count only once all has been well for a minute
        time.sleep(settle_s)
        for turn in range(repeats):
            name = ("decode-0", "prefill-0")[turn % 2]
            if streams:
                with Load(run.url, run.model, streams=streams, tokens=64, stall_s=LIMIT_S) as load:
                    time.sleep(3)
                    found = _hang(run, side, name, number)
                    found["lost"] = float(len(bad(load.finish())))
            else:
                found = _hang(run, side, name, number)
            yield found
            whole(run)
            time.sleep(settle_s)


def _hang(run: Run, side: Side, name: str, number: int) -> dict[str, float | None]:
    state = run.process_state(name)
    said = len(run.lines)
    began = time.monotonic()
    os.kill(state["pid"], number)
    out = dead = None
    while (out is None or dead is None) and time.monotonic() < began + LIMIT_S:
        if out is None and state["ports"]["rpc"] not in listed(side):
            out = time.monotonic() - began
        if dead is None and any(f"{name} hung" in line for line in run.lines[said:]):
            dead = time.monotonic() - began
        time.sleep(0.02 if time.monotonic() < began + 8 else 0.2)
    return {"out_s": out, "dead_s": dead}


def whole(run: Run) -> None:
    """Until all is as before."""
    until = time.monotonic() + LIMIT_S
    while not run.status()["ready"] or run.status()["degraded"]:
        if time.monotonic() > until:
            raise SystemExit(f"not whole again: {run.status()['reasons']}")
        time.sleep(0.2)


def fake(kind: str, repeats: int) -> Iterator[dict[str, float | None]]:
    """A child under the supervisor with its default watch."""
    for _ in range(repeats):
        yield {"out_s": None, "dead_s": asyncio.run(_fake(kind))}


async def _fake(kind: str) -> float:
    port = free_port()
    victim = {
        "mute": lambda: process("decode-0", argv=python(QUIET, port), health=Http("127.0.0.1", port, "/")),
        "log": lambda: process("decode-0", argv=python(SAYS), fatal=FATAL),
        "rank": lambda: process("decode-0", argv=python(TREE), ranks=Ranks("rank-server$", 4)),
    }[kind]()
    events: list[Event] = []
    sink = os.open(os.devnull, os.O_WRONLY)
    pump = LogPump(writer=LogWriter(sink))
    supervisor = Supervisor(plan_of(victim), pump, hooks=Hooks(on_event=events.append))
    running = asyncio.create_task(supervisor.run())
    try:
        await soon(lambda: pump.last_lines("decode-0") and events[-1].kind is Kind.HEALTHY)
        await asyncio.sleep(5 + random.random())  # a look at the ranks, and some probes; then at any moment
        began = time.monotonic()
        os.kill(int(pump.last_lines("decode-0")[0]), signal.SIGKILL if kind == "rank" else signal.SIGUSR1)
        await soon(lambda: any(event.kind is Kind.HUNG for event in events))
        return next(event.at for event in events if event.kind is Kind.HUNG) - began
    finally:
        supervisor.kill()
        await running
        pump.close()
        os.close(sink)


def row(kind: str, found: list[dict[str, float | None]]) -> dict[str, Any]:
    def figures(name: str) -> dict[str, float] | None:
        known = [value for each in found if (value := each.get(name)) is not None]
        if not known:
            return None
        return {"median": round(statistics.median(known), 2), "worst": round(max(known), 2)}

    return {
        "kind": kind,
        "what": REAL[kind][3] if kind in REAL else FAKE[kind],
        "real": kind in REAL,
        "repeats": len(found),
        "seen_dead": sum(1 for each in found if each["dead_s"] is not None),
        "out_s": figures("out_s"),
        "dead_s": figures("dead_s"),
        "lost": sum(int(each.get("lost") or 0) for each in found),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: median, and the worst in brackets."""
    lines = [
        "| hang | processes | repeats | out of routing | taken for dead | requests lost |",
        "|---|---|---|---|---|---|",
    ]
    for each in rows:
        out, dead = (
            f"{each[name]['median']:.2f} s ({each[name]['worst']:.2f} s)" if each[name] else "with the death"
            for name in ("out_s", "dead_s")
        )
        real = "Dynamo's" if each["real"] else "stand-ins"
        lines.append(
            f"| {each['what']} | {real} | {each['repeats']} | {out} | {dead} | {each['lost'] if each['real'] else ''} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join([*FAKE, *REAL]))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    rows = []
    for kind in args.kinds.split(","):
        run = real if kind in REAL else fake
        rows.append(row(kind, list(run(kind, args.repeats))))
        print(json.dumps(rows[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps({"cpus": os.cpu_count(), "rows": rows}, indent=1) + "\n")
        if args.markdown:
            args.markdown.write_text(table(rows))
    raise SystemExit(any(each["seen_dead"] < each["repeats"] for each in rows))


if __name__ == "__main__":
    main()
