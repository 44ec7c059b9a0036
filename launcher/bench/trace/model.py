"""One request of a trace, and the shape that a made trace aims at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

DEFAULT_BLOCK = 512
"""Tokens of one hash block in Mooncake's traces (FAST'25 artefact, and the page's agentic trace)."""
SHARED = 5 / 8
"""Share of the mean input that all sessions have in common. The public recipe says of its trace that the GPUs' prefix
caches hold its working set; 256 sessions of 64K tokens do so on 2 or 4 prefill workers only if they share about this
much (perf/README.md of the recipe; 2 x 4.2 million tokens on B200)."""
CONTEXT = 131072
"""Context length of gpt-oss, tokens."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request. `hash_ids` name the blocks of the whole prompt; equal ids are equal tokens."""

    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]
    session_id: str = ""
    """Turns of one session follow each other, each after the answer to the last; empty: a request of its own."""
    timestamp: float | None = None
    """Arrival, ms from the start of the trace; None where the trace has no schedule."""

    def to_json(self, *, session: bool = True, schedule: bool = True) -> dict[str, Any]:
        """The row as a line of the file."""
        line: dict[str, Any] = {}
        if session and self.session_id:
            line["session_id"] = self.session_id
        if schedule and self.timestamp is not None:
            line["timestamp"] = self.timestamp
        line |= {
            "input_length": self.input_length,
            "output_length": self.output_length,
            "hash_ids": list(self.hash_ids),
        }
        return line


@dataclass(frozen=True, slots=True)
class Shape:
    """What a made trace aims at. Lengths are tokens."""

    requests: int
    isl: int
    """Mean input length."""
    osl: int
    """Mean output length."""
    hit: float
    """Share of input tokens that an endless prefix cache would hold."""
    block: int = DEFAULT_BLOCK
    limit: int = CONTEXT
    """Longest input plus output; sessions end before it."""
    active: int = 256
    """Sessions that take turns at any time."""
    shared: int | None = None
    """Prefix that all sessions have in common (system prompt, tools, repository); `SHARED` of `isl` if None."""
    over_limit: bool = False
    """Let sessions outgrow `limit`, as the page's own trace does for about 7 % of its requests."""
    seed: int = 0

    @property
    def shared_tokens(self) -> int:
        """The common prefix in whole blocks."""
        wanted = round(self.isl * SHARED) if self.shared is None else self.shared
        return wanted // self.block * self.block


def ideal_hits(rows: Iterable[Row], block: int) -> list[int]:
    """Tokens of each row that an endless prefix cache would hold if the rows came one after the other.

    A prompt hits as far as its leading blocks have been seen; the last block counts only where it is whole.
    """
    seen: set[int] = set()
    hits = []
    for row in rows:
        held = 0
        for held_blocks, name in enumerate(row.hash_ids, start=1):
            if name not in seen:
                break
            held = min(held_blocks * block, row.input_length)
        hits.append(held)
        seen.update(row.hash_ids)
    return hits
