"""Records as AIPerf writes them, points made of them, and a stand-in for AIPerf that sends nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from launcher.bench.point import Conditions, Point, measure
from launcher.bench.records import parse


def record(
    row: int,
    *,
    start: float = 0.0,
    latency: float = 1.0,
    ttft: float = 0.2,
    itl: float = 0.01,
    tokens: int = 80,
    length: int = 1000,
    cached: int | None = 0,
    error: dict[str, Any] | None = None,
    phase: str = "profiling",
) -> str:
    """One line of `profile_export.jsonl`, in the form of AIPerf 0.13."""
    metrics: dict[str, Any] = {
        "time_to_first_token": {"value": ttft * 1e3, "unit": "ms"},
        "inter_token_latency": {"value": itl * 1e3, "unit": "ms"},
        "input_sequence_length": {"value": length, "unit": "tokens"},
        "output_sequence_length": {"value": tokens, "unit": "tokens"},
    }
    if cached is not None:
        metrics["usage_prompt_cache_read_tokens"] = {"value": cached, "unit": "tokens"}
    fields: dict[str, Any] = {
        "metadata": {
            "session_num": row,
            "conversation_id": f"session_{row:06d}",
            "request_start_ns": int(start * 1e9),
            "request_end_ns": int((start + latency) * 1e9),
            "benchmark_phase": phase,
            "was_cancelled": False,
        },
        "metrics": {} if error else metrics,
    }
    if error:
        fields["error"] = error
    return json.dumps(fields)


def make_point(concurrency: int, rate: float, variant: str = "", runs: int = 200) -> Point:
    """A point with some spread, for tests of reports."""
    lines = [
        record(number, start=number / rate + (number % 7) * 0.01, ttft=0.2 + (number % 5) * 0.02, itl=0.01)
        for number in range(runs)
    ]
    about = Conditions("h200-disagg", "mocker", True, "http://x", concurrency, 8, "words", variant)
    return measure(list(parse(lines)), about, [(1000, 0)] * runs)


FAKE = '''#!{python}
"""Writes what AIPerf would, had it sent the trace to an engine whose cache is a file that only a restart empties."""
import json, os, sys
sys.path.insert(0, {here!r})
from tests.bench.support import record
flags = {{}}
words = sys.argv[2:]
for place, word in enumerate(words):
    if word.startswith("-"):
        flags[word] = words[place + 1] if place + 1 < len(words) else ""
cache = {cache!r}
seen = set(json.load(open(cache))) if os.path.exists(cache) else set()
block = int(flags.get("--prompt-input-tokens-block-size", 512))
rows = [json.loads(line) for line in open(flags["--input-file"])] if "--input-file" in flags else []
out = flags["--artifact-dir"]
with open(os.path.join(out, "profile_export.jsonl"), "w") as export:
    for number in range(int(flags["--request-count"])):
        row = rows[number] if rows else {{"input_length": int(flags["--isl"]), "output_length": 10, "hash_ids": []}}
        hit = 0
        for name in row["hash_ids"]:
            if name not in seen:
                break
            hit += block
        seen |= set(row["hash_ids"])
        width = int(flags["--concurrency"])
        export.write(record(number, start=number / width, length=row["input_length"],
                            cached=min(hit, row["input_length"]), tokens=row["output_length"]) + "\\n")
json.dump(sorted(seen), open(cache, "w"))
with open(os.path.join(os.path.dirname(cache), "calls"), "a") as calls:
    calls.write(flags["--concurrency"] + "\\n")
'''


class FakeAIPerf:
    """A program with AIPerf's command line."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "aiperf"
        self.cache = folder / "cache.json"
        self._calls = folder / "calls"
        text = FAKE.format(
            python=sys.executable, here=str(Path(__file__).resolve().parents[2]), cache=str(self.cache)
        )
        self.path.write_text(text)
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[int]:
        """Concurrency of each run so far."""
        return [int(line) for line in self._calls.read_text().split()] if self._calls.exists() else []

    def restart(self) -> None:
        """What a restart of the engines does to their caches."""
        self.cache.unlink(missing_ok=True)
