"""What KV-aware routing is worth, live: the same trace through the real frontend and router over mockers, four ways.

    python scripts/bench_router.py [--workers 4] [--requests 300] [--concurrency 15]

Writes docs/evidence/router.md and router.json. Some twenty minutes on 2 cores. The load comes from a small client of
its own: AIPerf would take more CPU than frontend and router together here. Prompts are built from the trace's block ids
with the built-in byte tokenizer, one letter a token, so equal ids are equal tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import string
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from launcher.bench import stats
from launcher.bench.service import Started
from launcher.bench.trace import figures, make
from launcher.bench.trace.model import Row, Shape

OUT = Path(__file__).resolve().parent.parent / "docs" / "evidence"
MODEL = "openai/gpt-oss-120b"
TARGET = "h200-agg"
SILENT = "kv, events expected, none published"
MODES: dict[str, tuple[str, list[str]]] = {
    "kv, events": ("what the launcher sets up", []),
    "kv, predicted": (
        "`router.approximate=true`: no events, the router assumes",
        ["router.approximate=true"],
    ),
    SILENT: ("what the public recipe does: the router waits for events that no worker sends", []),
    "round-robin": ("no look at caches at all", ["router.mode=round-robin"]),
}


@dataclass(frozen=True)
class Result:
    """One mode. Seconds; hits are shares of input tokens."""

    mode: str
    round: int
    """The second round goes through the modes backwards, so that a slower machine shows."""
    requests: int
    failed: int
    requests_s: float
    output_tok_s: float
    ttft_mean: float
    ttft_p50: float
    ttft_p99: float
    engine_hits: float
    """What the workers really had cached, by their own usage figures."""
    router_hits: float | None
    """What the router believed, by its own metric; None where it has none."""


@dataclass
class Request:
    """One request as the client saw it."""

    ttft: float = 0.0
    end: float = 0.0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    error: str = ""


def prompt(row: Row, block: int) -> str:
    """The row's tokens as letters."""
    text = "".join(
        "".join(random.Random(name).choices(string.ascii_letters, k=block)) for name in row.hash_ids
    )
    return text[: row.input_length]


async def ask(session: aiohttp.ClientSession, url: str, row: Row, block: int) -> Request:
    """Stream one answer."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt(row, block)}],
        "max_tokens": row.output_length,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    found, began = Request(), time.monotonic()
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            if response.status != 200:
                found.error = f"HTTP {response.status}"
                return found
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                found.ttft = found.ttft or time.monotonic() - began
                usage = json.loads(line[6:]).get("usage")
                if usage:
                    found.prompt, found.output = usage["prompt_tokens"], usage["completion_tokens"]
                    found.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    except (aiohttp.ClientError, TimeoutError) as error:
        found.error = f"{type(error).__name__}: {error}"
    found.end = time.monotonic() - began
    return found


async def replay(url: str, rows: Sequence[Row], concurrency: int, block: int) -> tuple[list[Request], float]:
    """Sessions side by side, the turns of each one after the other."""
    sessions: dict[str, list[Row]] = {}
    for row in rows:
        sessions.setdefault(row.session_id, []).append(row)
    waiting = list(sessions.values())[::-1]
    results: list[Request] = []
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=False) as session:

        async def user() -> None:
            while waiting:
                results.extend([await ask(session, url, row, block) for row in waiting.pop()])

        began = time.monotonic()
        await asyncio.gather(*(user() for _ in range(concurrency)))
        return results, time.monotonic() - began


def silent_python(folder: Path) -> str:
    """An interpreter whose mockers publish to a broker that is not there.

    The mocker has no switch for it, and the launcher refuses to set the deployment up like that.
    """
    path = folder / "silent" / "bin" / "python"
    path.parent.mkdir(parents=True)
    # The launcher reads the installed versions beside the interpreter.
    (folder / "silent" / "lib").symlink_to(Path(sys.prefix) / "lib")
    path.write_text(
        "#!/bin/sh\n"
        'case "$*" in *"-m dynamo.mocker"*)\n'
        '  export DYN_ZMQ_BROKER_URL="xsub=tcp://127.0.0.1:9 , xpub=tcp://127.0.0.1:9" ;;\n'
        "esac\n"
        f'exec {sys.executable} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


async def believed(url: str) -> tuple[float, float]:
    """Sum and count of the router's hit rates so far."""
    async with aiohttp.ClientSession(trust_env=False) as session, session.get(f"{url}/metrics") as response:
        text = await response.text()
    totals = {"sum": 0.0, "count": 0.0}
    for line in text.splitlines():
        for part in totals:
            if line.startswith(f"dynamo_component_router_kv_hit_rate_{part}"):
                totals[part] += float(line.rpartition(" ")[2])
    return totals["sum"], totals["count"]


def measure(mode: str, number: int, args: argparse.Namespace, rows: Sequence[Row], folder: Path) -> Result:
    """One deployment, from empty caches."""
    words = ["--target", TARGET, "--engine", "mocker", "--set", f"workers.aggregated.count={args.workers}"]
    words += ["--set", f"simulation.args.speedup-ratio={args.speed}"]
    for assignment in MODES[mode][1]:
        words += ["--set", assignment]
    if mode == SILENT:
        words += ["--python", silent_python(folder)]
    service = Started(words, MODEL, folder / mode.replace(" ", "-"), tell, ready_s=300, proven=mode != SILENT)
    try:
        before = asyncio.run(believed(service.url))
        requests, spent = asyncio.run(replay(service.url, rows, args.concurrency, args.block))
        after = asyncio.run(believed(service.url))
    finally:
        service.close()
    good = [request for request in requests if not request.error]
    ttft = [request.ttft for request in good]
    count = after[1] - before[1]
    found = Result(
        mode=mode,
        round=number,
        requests=len(good),
        failed=len(requests) - len(good),
        requests_s=len(good) / spent,
        output_tok_s=sum(request.output for request in good) / spent,
        ttft_mean=stats.mean(ttft),
        ttft_p50=stats.quantile(ttft, 0.5),
        ttft_p99=stats.quantile(ttft, 0.99),
        engine_hits=sum(request.cached for request in good) / max(1, sum(request.prompt for request in good)),
        router_hits=(after[0] - before[0]) / count if count else None,
    )
    tell(str(found))
    return found


def text(results: Sequence[Result], shape: str, args: argparse.Namespace) -> str:
    """The page of evidence."""
    lines = [
        "# What KV-aware routing is worth: four ways over one trace",
        "",
        f"Real frontend and router of the installed ai-dynamo, {args.workers} aggregated mockers (simulated workers:",
        f"the timing is the simulator's at {args.speed:g} times its speed, so that the load of the machine's cores",
        "matters little; no figure is one of a GPU), one run after the other on the same cores,",
        f"each from a fresh deployment; {args.concurrency} sessions at once, turns one after another. Trace:",
        "",
        "```",
        shape,
        "```",
        "",
        "| mode | round | engines' hits | router's belief | TTFT mean / p50 / p99 ms | req/s | out tok/s | failed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in sorted(results, key=lambda each: list(MODES).index(each.mode)):
        belief = "-" if each.router_hits is None else f"{each.router_hits:.1%}"
        lines.append(
            f"| {each.mode} | {each.round} | {each.engine_hits:.1%} | {belief} | {each.ttft_mean * 1e3:,.0f} / "
            f"{each.ttft_p50 * 1e3:,.0f} / {each.ttft_p99 * 1e3:,.0f} | {each.requests_s:.2f} | "
            f"{each.output_tok_s:,.0f} | {each.failed} |"
        )
    lines += ["", *(f"- {mode}: {MODES[mode][0]}" for mode in MODES), "", *against(results), ""]
    lines += ["Made by `scripts/bench_router.py`.", ""]
    return "\n".join(lines)


def against(results: Sequence[Result]) -> list[str]:
    """The launcher's way beside each other one, means over the rounds."""
    by = {mode: [each for each in results if each.mode == mode] for mode in MODES}
    ours, lines = by.pop(next(iter(MODES))), []
    if not ours:
        return []

    def mean(group: Sequence[Result], figure: str) -> float:
        return stats.mean([getattr(each, figure) for each in group])

    for mode, others in by.items():
        if others:
            hits = mean(ours, "engine_hits") - mean(others, "engine_hits")
            first = mean(ours, "ttft_mean") / mean(others, "ttft_mean") - 1
            rate = mean(ours, "requests_s") / mean(others, "requests_s") - 1
            lines.append(
                f"KV with events against {mode}: {hits * 100:+.1f} points of hits, mean TTFT {first:+.0%}, "
                f"requests/s {rate:+.0%}.\n"
            )
    return lines


def tell(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Measure every mode, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--concurrency", type=int, default=15)
    parser.add_argument("--isl", type=int, default=14000)
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--speed", type=float, default=0.25, help="of the simulated engines")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--mode", action="append", choices=tuple(MODES))
    args = parser.parse_args()
    shape = Shape(
        requests=args.requests,
        isl=args.isl,
        osl=48,
        hit=0.8,
        block=args.block,
        limit=60_000,
        active=args.concurrency,
        shared=4096,
    )
    rows = make.make(shape)
    described = figures.describe(rows, args.block, shape.limit).text()
    tell(described)
    results = []
    for number in range(1, args.rounds + 1):
        modes = list(args.mode or MODES)
        with tempfile.TemporaryDirectory(prefix="bench-router-") as folder:
            order = modes if number % 2 else modes[::-1]
            results += [measure(mode, number, args, rows, Path(folder)) for mode in order]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "router.md").write_text(text(results, described, args), encoding="utf-8")
    record: dict[str, Any] = {"arguments": vars(args), "results": [asdict(each) for each in results]}
    (OUT / "router.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
