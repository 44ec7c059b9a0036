"""AIPerf's record of each request (`profile_export.jsonl`), reduced to what the figures need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFUSAL = re.compile(
    r"context.{0,3}length|max_model_len|max_seq_len|maximum (context|sequence|model|input)|"
    r"(prompt|input|sequence|request).{0,40}(too long|exceed|longer than)|exceeds? .{0,40}(context|token|length)",
    re.IGNORECASE,
)
"""How vLLM, TensorRT-LLM and Dynamo word it when a prompt is longer than they take."""
REFUSING = (400, 413, 422)


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are seconds; `start` and `end` since the epoch."""

    row: int
    """Which entry of the data set it was."""
    start: float
    end: float
    ttft: float | None = None
    itl: float | None = None
    """Mean time between tokens, seconds."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Input tokens that the engine says came from its prefix cache; None where it does not say."""
    error: str = ""
    refused: bool = False
    """Turned away because it is longer than the context: no fault of the deployment."""

    @property
    def ok(self) -> bool:
        return not self.error

    @property
    def latency(self) -> float:
        return self.end - self.start


def read(path: Path) -> list[Record]:
    """The measured requests of a run, by start; warm-up left out. A torn last line (a run cut short) is ignored."""
    with path.open(encoding="utf-8") as lines:
        return sorted(parse(lines), key=lambda record: record.start)


def parse(lines: Iterable[str]) -> Iterator[Record]:
    """Records from lines of the export."""
    for line in lines:
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        record = _record(fields)
        if record is not None:
            yield record


def _record(fields: dict[str, Any]) -> Record | None:
    about = fields.get("metadata", {})
    if about.get("benchmark_phase", "profiling") != "profiling":
        return None
    metrics = fields.get("metrics") or {}
    error, code = _error(fields.get("error"), about)

    def value(name: str) -> float | None:
        found = metrics.get(name, {}).get("value")
        return float(found) if isinstance(found, int | float) else None

    def count(name: str) -> int | None:
        found = value(name)
        return int(found) if found is not None else None

    def seconds(name: str) -> float | None:
        found = value(name)
        return found / 1e3 if found is not None else None

    start = about["request_start_ns"] / 1e9
    return Record(
        row=_row(about),
        start=start,
        end=(about.get("request_end_ns") or about["request_start_ns"]) / 1e9,
        ttft=seconds("time_to_first_token"),
        itl=seconds("inter_token_latency"),
        input_tokens=count("input_sequence_length"),
        output_tokens=count("output_sequence_length"),
        cached_tokens=count("usage_prompt_cache_read_tokens"),
        error=error,
        refused=is_refusal(code, error),
    )


def _row(about: dict[str, Any]) -> int:
    """The data set's entry: `session_000012` is the twelfth; AIPerf's own count where the name says nothing."""
    digits = re.search(r"(\d+)$", str(about.get("conversation_id", "")))
    return int(digits.group(1)) if digits else int(about.get("session_num", 0))


def _error(found: Any, about: dict[str, Any]) -> tuple[str, int | None]:
    if isinstance(found, dict):
        code = found.get("code")
        text = str(found.get("message") or found.get("type") or "unknown error")
        return text, code if isinstance(code, int) else None
    if about.get("was_cancelled"):
        return "cancelled by the client", None
    return (str(found), None) if found else ("", None)


def is_refusal(code: int | None, text: str) -> bool:
    """Whether an error is the engine's answer to a prompt above the context length."""
    if not text or (code is not None and code not in REFUSING):
        return False
    return REFUSAL.search(text) is not None
