"""What a trace amounts to: lengths, hit rate of an endless cache, working set."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .model import Row, ideal_hits


@dataclass(frozen=True, slots=True)
class Figures:
    """Lengths are tokens."""

    requests: int
    sessions: int
    isl_mean: float
    isl_p50: float
    isl_p90: float
    isl_max: int
    osl_mean: float
    osl_max: int
    hit: float
    """Share of input tokens that an endless prefix cache holds, rows in order."""
    unique_tokens: int
    """Tokens of all distinct blocks: what that cache would have to keep."""
    over_limit: int
    """Requests whose input alone is above the context limit: refused."""
    over_limit_with_output: int
    """Requests whose input and output together are above it, those above counted too."""
    block: int
    limit: int

    def to_json(self) -> dict[str, float | int]:
        return dataclasses.asdict(self)

    def text(self) -> str:
        """A few lines for people."""
        lines = [
            f"requests        {self.requests} in {self.sessions} sessions",
            f"input tokens    mean {self.isl_mean:,.0f}, p50 {self.isl_p50:,.0f}, p90 {self.isl_p90:,.0f}, "
            f"max {self.isl_max:,}",
            f"output tokens   mean {self.osl_mean:,.0f}, max {self.osl_max:,}",
            f"prefix hits     {self.hit:.1%} of input tokens with an endless cache, blocks of {self.block}",
            f"distinct tokens {self.unique_tokens:,} (what that cache holds at the end)",
        ]
        share = self.over_limit / self.requests
        lines.append(
            f"over {self.limit:,}    {self.over_limit} requests by input alone ({share:.1%}), "
            f"{self.over_limit_with_output} with their output"
        )
        return "\n".join(lines)


def describe(rows: Sequence[Row], block: int, limit: int) -> Figures:
    """The figures of a trace of at least one row."""
    lengths = [row.input_length for row in rows]
    total = sum(lengths)
    sessions = {row.session_id for row in rows if row.session_id}
    return Figures(
        requests=len(rows),
        sessions=len(sessions) + sum(1 for row in rows if not row.session_id),
        isl_mean=total / len(rows),
        isl_p50=statistics.median(lengths),
        isl_p90=sorted(lengths)[min(len(lengths) - 1, int(0.9 * len(lengths)))],
        isl_max=max(lengths),
        osl_mean=statistics.fmean(row.output_length for row in rows),
        osl_max=max(row.output_length for row in rows),
        hit=sum(ideal_hits(rows, block)) / total if total else 0.0,
        unique_tokens=block * len({name for row in rows for name in row.hash_ids}),
        over_limit=sum(1 for length in lengths if length > limit),
        over_limit_with_output=sum(1 for row in rows if row.input_length + row.output_length > limit),
        block=block,
        limit=limit,
    )
