"""One point: wait, warm up, send the load, turn its records into figures, keep everything."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher import simmodel
from launcher.bench.limits import context_limit, gpus
from launcher.bench.trace import figures, write
from launcher.bench.trace.model import DEFAULT_BLOCK, Row, ideal_hits
from launcher.bench.trace.workload import check as workload_check
from launcher.bench.trace.workload import rows as workload_rows
from launcher.engines import registry
from launcher.target.schema import Target, Workload

from . import aiperf, records, warmup
from .point import Conditions, Point, measure
from .service import Service

POINT = "point.json"
TRACE = "trace.jsonl"
TRACE_ROUNDS = 40
"""Requests for each concurrent session of a made trace; 10,240 at 256, near the page's own."""
SYNTHETIC_ROUNDS = 10
"""Requests for each concurrent one with synthetic prompts, as in the public recipe."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all points of a benchmark share."""

    target: Target
    workload: Workload
    program: str
    """AIPerf."""
    given: Sequence[Row] | None = None
    """Somebody's trace; made from the workload if None."""
    given_name: str = ""
    block: int = DEFAULT_BLOCK
    requests: int | None = None
    seed: int = 0
    tokenizer: str | None = None
    processes: int | None = None
    warmup: int = 0

    @property
    def simulated(self) -> bool:
        return registry.worker_engine(self.target).simulated

    def check(self, concurrency: int) -> None:
        """Raise LauncherError where no trace can be made for a point."""
        if self.given is None and self.workload.cache_hit:
            count = self.requests or TRACE_ROUNDS * concurrency
            workload_check(self.workload, count, concurrency, context_limit(self.target), self.seed)

    def rows(self, concurrency: int) -> list[Row]:
        """The requests of a point, without the sessions' names: AIPerf would put a session's whole prompts one behind
        the other, and each already holds the conversation so far. Empty for synthetic prompts."""
        if self.given is not None:
            return list(self.given[: self.requests])
        if not self.workload.cache_hit:
            return []
        count = self.requests or TRACE_ROUNDS * concurrency
        return workload_rows(self.workload, count, concurrency, context_limit(self.target), self.seed)

    def count(self, concurrency: int, rows: Sequence[Row]) -> int:
        """Requests of a point."""
        return len(rows) or self.requests or self.workload.requests or SYNTHETIC_ROUNDS * concurrency

    def words(self, rows: Sequence[Row], count: int) -> str:
        """The workload in words."""
        if not rows:
            return f"synthetic, {self.workload.isl} in, {self.workload.osl} out, {count} requests, seed {self.seed}"
        found = figures.describe(rows, self.block, context_limit(self.target))
        name = self.given_name or f"made trace, seed {self.seed}"
        return (
            f"{name}: {count} requests, {found.isl_mean:,.0f} in (p50 {found.isl_p50:,.0f}), "
            f"{found.osl_mean:,.0f} out, {found.hit:.1%} hits with an endless cache"
        )


def point(
    plan: Plan,
    service: Service,
    concurrency: int,
    folder: Path,
    tell: Callable[[str], None],
    *,
    variant: str = "",
) -> Point:
    """Measure one point; its artifacts and `point.json` are in `folder`. Raises LauncherError."""
    target = plan.target
    rows = plan.rows(concurrency)
    count = plan.count(concurrency, rows)
    folder.mkdir(parents=True, exist_ok=True)
    trace = None
    if rows:
        trace = folder / TRACE
        write.write(trace, write.text(rows, session=False, schedule=False))
    warmup.warm(service.url, target.model.name, plan.warmup, plan.seed, tell, longest=context_limit(target))
    load = aiperf.Load(
        url=service.url,
        model=target.model.name,
        tokenizer=plan.tokenizer or (simmodel.MODEL_NAME if plan.simulated else target.model.id),
        concurrency=concurrency,
        requests=count,
        seed=plan.seed,
        trace=trace,
        block=plan.block if rows else None,
        isl=plan.workload.isl,
        osl=plan.workload.osl,
        processes=plan.processes,
    )
    conditions = Conditions(
        target=target.name,
        engine=target.engine.kind,
        simulated=plan.simulated,
        url=service.url,
        concurrency=concurrency,
        gpus=gpus(target),
        workload=plan.words(rows, count),
        variant=variant,
        client=aiperf.version(plan.program),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    tell(f"concurrency {concurrency}: {conditions.workload}")
    built_in = plan.simulated and plan.tokenizer is None
    export = aiperf.run(
        plan.program,
        load,
        folder / "aiperf",
        tell,
        offline=built_in,
        hub=simmodel.HUB_CACHE if built_in else None,
    )
    found = measure(records.read(export), conditions, _ideal(plan, rows, count))
    part = folder / f".{POINT}.part"
    part.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
    # A point that has this file is done: it appears whole or not at all.
    part.replace(folder / POINT)
    return found


def _ideal(plan: Plan, rows: Sequence[Row], count: int) -> list[tuple[int, int]]:
    if not rows:
        # Synthetic prompts share nothing.
        return [(plan.workload.isl, 0)] * count
    return [(row.input_length, hit) for row, hit in zip(rows, ideal_hits(rows, plan.block), strict=True)]
