"""Closed-loop load: N streams at once, prompts with a long shared beginning, replies of a fixed length.

    python -m tests.gpu.load --url http://127.0.0.1:8000 --model NAME --concurrency 32 --seconds 60 \\
        --shared 58944 --own 6592 --groups 8 --output 400

Prompts are words that are one token each in the o200k vocabulary. Output tokens count by the share of a reply that lies
in the time window, so that replies cut off at its ends do not bend the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from launcher.prove.kv_routing import WORDS

PAUSE_S = 0.5
"""After a failure: a client that is refused does not come back at once."""


@dataclass(frozen=True)
class Shape:
    """What is asked for."""

    shared: int = 0
    """Tokens of a prompt that the prompts of its group have in common, at its beginning."""
    own: int = 512
    """Tokens after that which nobody has seen."""
    groups: int = 1
    output: int = 64
    concurrency: int = 8


@dataclass
class Reply:
    """One request. Times are seconds from the start of the load."""

    began: float
    ended: float = 0.0
    first: float = 0.0
    tokens: int = 0
    prompt: int = 0
    cached: int = 0
    error: str = ""


@dataclass
class Load:
    """Everything that was asked and answered."""

    shape: Shape
    replies: list[Reply] = field(default_factory=list)
    began_wall: float = 0.0

    @property
    def good(self) -> list[Reply]:
        return [reply for reply in self.replies if not reply.error]

    @property
    def bad(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.error]

    def figures(self, window_s: float, from_s: float = 0.0) -> dict[str, Any]:
        """Rates and times of the replies that lie in the window."""
        inside = [reply for reply in self.good if reply.ended > from_s and reply.first < from_s + window_s]
        full = [reply for reply in self.good if reply.began >= from_s and reply.first <= from_s + window_s]
        tokens = sum(_share(reply, from_s, from_s + window_s) * reply.tokens for reply in inside)
        pace = [(each.tokens - 1) / (each.ended - each.first) for each in inside if each.ended > each.first]
        first = [reply.first - reply.began for reply in full]
        prompts = sum(reply.prompt for reply in full)
        return {
            "requests": len(self.replies),
            "errors": len(self.bad),
            "first_error": self.bad[0].error if self.bad else "",
            "window_s": round(window_s, 1),
            "output_tok_s": round(tokens / window_s, 1) if window_s else None,
            "tok_s_user_avg": _rounded(statistics.fmean(pace) if pace else None),
            "tok_s_user_p50": _rounded(_rank(pace, 0.5)),
            "ttft_avg_s": _rounded(statistics.fmean(first) if first else None),
            "ttft_p50_s": _rounded(_rank(first, 0.5)),
            "ttft_p99_s": _rounded(_rank(first, 0.99)),
            "prompt_tokens_avg": round(prompts / len(full)) if full else None,
            "cached_share": _rounded(sum(reply.cached for reply in full) / prompts if prompts else None),
            "output_tokens_avg": _rounded(statistics.fmean(r.tokens for r in inside) if inside else None),
        }


def _share(reply: Reply, start: float, end: float) -> float:
    """Share of the reply's tokens that came between the two times."""
    spread = reply.ended - reply.first
    if spread <= 0:
        return float(start <= reply.ended <= end)
    return max(0.0, min(reply.ended, end) - max(reply.first, start)) / spread


def _rank(values: Sequence[float], share: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if value is not None else None


def words(chance: random.Random, count: int) -> str:
    """So many tokens that nobody has seen."""
    return " ".join(chance.choices(WORDS, k=count))


class Generator:
    """Runs load against one API; use it in an event loop. `stop` ends a load early."""

    def __init__(
        self, url: str, model: str, shape: Shape, *, seed: int = 1, timeout_s: float = 120.0
    ) -> None:
        self.load = Load(shape)
        self.url = url
        self.model = model
        self.stop = asyncio.Event()
        self._chance = random.Random(seed)
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._beginnings = [words(self._chance, shape.shared) for _ in range(shape.groups)]
        self._zero = time.perf_counter()

    async def warm(self) -> float:
        """Compute each shared beginning once; the seconds that took."""
        began = time.perf_counter()
        async with aiohttp.ClientSession(timeout=self._timeout) as session:
            await asyncio.gather(*(self._one(session, text, 4) for text in self._beginnings if text))
        self.load.replies.clear()
        return time.perf_counter() - began

    async def run(self, seconds: float, grace_s: float = 10.0, over_s: float = 0.0) -> Load:
        """Ask for so long; replies under way then get the grace period. The streams begin one by one over `over_s`."""
        self._zero = time.perf_counter()
        self.load.began_wall = time.time()
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=self._timeout, connector=connector) as session:
            streams = [
                asyncio.create_task(self._stream(session, number, seconds, over_s))
                for number in range(self.load.shape.concurrency)
            ]
            _, late = await asyncio.wait(streams, timeout=seconds + grace_s)
            for each in late:
                each.cancel()
            await asyncio.gather(*streams, return_exceptions=True)
        return self.load

    async def _stream(
        self, session: aiohttp.ClientSession, number: int, seconds: float, over_s: float
    ) -> None:
        shape = self.load.shape
        await asyncio.sleep(over_s * number / shape.concurrency)
        turn = number
        while time.perf_counter() - self._zero < seconds and not self.stop.is_set():
            prompt = f"{self._beginnings[turn % shape.groups]} {words(self._chance, shape.own)}".strip()
            reply = await self._one(session, prompt, shape.output)
            turn += shape.concurrency + 1
            if reply.error:
                await asyncio.sleep(PAUSE_S)

    async def _one(self, session: aiohttp.ClientSession, prompt: str, output: int) -> Reply:
        reply = Reply(time.perf_counter() - self._zero)
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": output,
            "min_tokens": output,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 1.0,
        }
        try:
            async with session.post(f"{self.url}/v1/completions", json=body) as answer:
                if answer.status != 200:
                    reply.error = f"HTTP {answer.status}: {(await answer.text())[:160]}"
                else:
                    await self._read(answer, reply)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reply.error = f"{type(error).__name__}: {str(error)[:160]}"
        if not reply.error and not reply.tokens:
            reply.error = "no token"
        if reply.error or not reply.ended:
            # Not when it last had a token: that is long before where the worker hung.
            reply.ended = time.perf_counter() - self._zero
        self.load.replies.append(reply)
        return reply

    async def _read(self, answer: aiohttp.ClientResponse, reply: Reply) -> None:
        chunks, done = 0, False
        async for raw in answer.content:
            if not raw.startswith(b"data:"):
                continue
            text = raw[5:].strip()
            if text == b"[DONE]":
                done = True
                continue
            event = json.loads(text)
            if event.get("error"):
                reply.error = json.dumps(event["error"])[:160]
                return
            if event.get("choices"):
                reply.ended = time.perf_counter() - self._zero
                reply.first = reply.first or reply.ended
                chunks += 1
            usage = event.get("usage")
            if usage:
                reply.tokens = usage.get("completion_tokens") or 0
                reply.prompt = usage.get("prompt_tokens") or 0
                reply.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        reply.tokens = reply.tokens or chunks
        if not done:
            reply.error = "the stream was cut"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="openai/gpt-oss-120b")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    for name, value in asdict(Shape()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    shape = Shape(**{name: getattr(args, name) for name in asdict(Shape())})

    async def run() -> None:
        generator = Generator(args.url, args.model, shape, seed=args.seed)
        warm = await generator.warm() if shape.shared else 0.0
        load = await generator.run(args.seconds)
        json.dump({"warm_s": round(warm, 1), **load.figures(args.seconds)}, sys.stdout, indent=1)
        print()

    asyncio.run(run())


if __name__ == "__main__":
    main()
