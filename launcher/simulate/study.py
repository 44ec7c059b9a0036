"""From a target to the cases that are worth simulating, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launcher.bench.limits import context_limit, gpus
from launcher.bench.trace import figures
from launcher.bench.trace.figures import Figures
from launcher.bench.trace.model import DEFAULT_BLOCK, Row
from launcher.bench.trace.workload import check as workload_check
from launcher.bench.trace.workload import rows as workload_rows
from launcher.plan.model import Role
from launcher.target.schema import Target, Workers, Workload

from . import splits, timing
from .engines import ACCEPT_LENGTH, SimEngine, build
from .predict import Case, Job, Prediction, run
from .splits import Split

TURNS = 24
"""Requests for each concurrent session of a made trace; more moves the predictions by a percent and costs minutes."""
FLOOR = 50.0
"""Tokens per second and user that the public recipe was tuned to keep in its agentic workload."""
ROUTERS = ("kv", "round-robin")


@dataclass(slots=True)
class Study:
    """A target on the simulator."""

    target: Target
    workload: Workload
    native: str
    python: str
    table: str | None = None
    """A timing table by name instead of the target's own."""
    profile: Path | None = None
    """The user's own timing, in the simulator's format."""
    accepted: float = ACCEPT_LENGTH
    given: Sequence[Row] | None = None
    """A trace; made from the target's workload where None."""
    block: int = DEFAULT_BLOCK
    requests: int | None = None
    seed: int = 0
    shared: int | None = None
    """Prefix that the sessions of a made trace share, tokens."""
    traces: dict[int, Figures] = field(default_factory=dict)
    """Concurrency to what was replayed at it."""
    dropped: int = 0
    """Requests of the given trace above the context length: the engine would refuse them, the simulator cannot."""
    _rows: dict[int, Sequence[Row]] = field(default_factory=dict)
    engines: dict[Role, SimEngine] = field(default_factory=dict)
    """Each role's simulated worker; made from the target."""

    def __post_init__(self) -> None:
        self.engines = self._make_engines()

    @property
    def gpus(self) -> int:
        return gpus(self.target)

    @property
    def own(self) -> Split:
        """The target's own split."""
        roles = self.target.workers
        count = {role: workers.count for role, workers in roles.items()}
        return Split(count.get(Role.AGGREGATED, 0), count.get(Role.PREFILL, 0), count.get(Role.DECODE, 0))

    @property
    def router(self) -> str:
        """The target's own way of choosing a worker, of those that the simulator has."""
        return "kv" if self.target.router.mode == "kv" else "round-robin"

    @property
    def splits(self) -> list[Split]:
        """Every split of the target's GPUs, the target's own among them."""
        width = {role: engine.gpus for role, engine in self.engines.items()}
        found = splits.every(
            self.gpus,
            aggregated=width.get(Role.AGGREGATED),
            prefill=width.get(Role.PREFILL),
            decode=width.get(Role.DECODE),
        )
        return found if self.own in found else [self.own, *found]

    @property
    def tables(self) -> list[str]:
        """Where the timing comes from, for people."""
        if self.profile is not None:
            return [f"timing profile {self.profile}"]
        names = sorted({engine.table for engine in self.engines.values()})
        return [f"kernel times {name}: {timing.load(name).source}" for name in names]

    @property
    def offloads(self) -> bool:
        return any(engine.host_blocks for engine in self.engines.values())

    @property
    def drafts(self) -> int:
        return self.target.speculative.num_tokens if self.target.speculative else 0

    def check(self, concurrency: int) -> None:
        """Raise LauncherError where no trace can be made for so many at once."""
        if self.given is None:
            workload_check(
                self.workload,
                self._count(concurrency),
                concurrency,
                context_limit(self.target),
                self.seed,
                self.shared,
            )

    def run(self, cases: Sequence[Case], tell: Callable[[str], None]) -> Iterator[Prediction]:
        """Simulate the cases in order."""
        for case in cases:
            self._trace(case.concurrency)
        job = Job(self.python, self._rows, self.block, self.engines, self._grids(), self.gpus)
        return run(job, cases, tell)

    def _make_engines(self) -> dict[Role, SimEngine]:
        """An engine for each role that the GPUs could have: a role that the target lacks is set up like one it has."""
        roles = dict(self.target.workers.items())
        alone = roles.get(Role.AGGREGATED)
        wanted: dict[Role, Workers] = dict(roles)
        if alone is not None:
            wanted |= {Role.PREFILL: alone, Role.DECODE: alone}
        elif roles[Role.PREFILL].tensor_parallel == roles[Role.DECODE].tensor_parallel:
            wanted[Role.AGGREGATED] = roles[Role.DECODE]
        name = self.table or (str(self.profile) if self.profile is not None else None)
        return {
            role: build(self.target, role, workers, self.native, name) for role, workers in wanted.items()
        }

    def _grids(self) -> dict[str, timing.Grid | Path]:
        if self.profile is not None:
            return {str(self.profile): self.profile}
        held = next(iter(self.traces.values()))
        caching = all(engine.prefix_caching for engine in self.engines.values())
        prefix = held.hit * held.isl_mean if caching else 0.0
        grids: dict[str, timing.Grid | Path] = {}
        for name in {engine.table for engine in self.engines.values()}:
            grids[name] = timing.grid(
                timing.load(name),
                prefix=prefix,
                draft_tokens=self.drafts,
                accepted=self.accepted if self.drafts else 1.0,
            )
        return grids

    def _trace(self, concurrency: int) -> None:
        if concurrency in self._rows:
            return
        limit = context_limit(self.target)
        if self.given is not None:
            rows: list[Row] = [row for row in self.given if row.input_length <= limit]
            self.dropped = len(self.given) - len(rows)
        else:
            rows = workload_rows(
                self.workload, self._count(concurrency), concurrency, limit, self.seed, self.shared
            )
        self._rows[concurrency] = rows
        self.traces[concurrency] = figures.describe(rows, self.block, limit)

    def _count(self, concurrency: int) -> int:
        if self.requests is not None:
            return self.requests
        return (TURNS if self.workload.cache_hit else 4) * concurrency


def best(predictions: Sequence[Prediction], floor: float = 0.0) -> Prediction | None:
    """Most tokens a second for each GPU among those that give every user at least `floor` tokens a second."""
    fit = [prediction for prediction in predictions if prediction.tok_s_user >= floor]
    return max(fit, key=lambda prediction: prediction.tok_s_gpu, default=None)
