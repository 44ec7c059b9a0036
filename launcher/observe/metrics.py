"""The launcher's own metrics, made from what is known at the moment of the scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from launcher import __version__
from launcher.observe.capacity import Capacity
from launcher.observe.gpus import GpuUse
from launcher.observe.history import History
from launcher.observe.scrape import Scrape
from launcher.plan.model import Plan
from launcher.supervise.events import ProcessState, State

WORKER = ("worker", "role", "gpu")
"""Labels of whatever is about one process; those of the merged pages too."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known now. Times are seconds."""

    plan: Plan
    states: Sequence[ProcessState]
    capacity: Mapping[str, Capacity]
    ready: bool
    started_wall: float
    """Since the epoch."""
    ready_s: float | None
    """From the start to the first time that the deployment was ready."""
    history: History
    restored: int
    withdrawn: int
    lines: int
    dropped: int
    incidents: int
    gpus: Sequence[GpuUse]
    scrape: Scrape | None


class OwnMetrics(Collector):
    """Its `text()` is the first part of the page `/metrics`."""

    def __init__(self, facts: Callable[[], Facts]) -> None:
        self._facts = facts
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        # The launcher's own memory, CPU time and file descriptors: launcher_process_*.
        ProcessCollector(namespace="launcher", registry=self._registry)

    def text(self) -> str:
        """The metrics in the text format."""
        return generate_latest(self._registry).decode()

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: what is exported depends on the plan."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        facts = self._facts()
        yield from _deployment(facts)
        yield from _workers(facts)
        yield from _plumbing(facts)
        if facts.scrape is not None:
            yield from _scrapes(facts.scrape)
        if facts.gpus:
            yield from _gpus(facts.gpus)


def _deployment(facts: Facts) -> Iterator[Metric]:
    plan = facts.plan
    labels = ("version", "target", "engine", "model", "plan", "simulated")
    info = GaugeMetricFamily("launcher_build_info", "What runs, as labels; always 1", labels=labels)
    simulated = str(plan.simulated).lower()
    info.add_metric((__version__, plan.target, plan.engine, plan.model, plan.hash(), simulated), 1)
    yield info
    yield _gauge("ready", "1 while /readyz says 200", facts.ready)
    yield _gauge("start_time_seconds", "Start of the launcher, since the epoch", facts.started_wall)
    if facts.ready_s is not None:
        yield _gauge("time_to_ready_seconds", "From the start to the first time ready", facts.ready_s)
    drain = facts.history.drain
    yield _gauge("draining", "1 once the deployment was told to end", drain.began is not None)
    yield _gauge("drain_seconds", "How long the drain has taken so far", drain.seconds(time.monotonic()))
    yield _counter("incidents", "Incident files written by this run", facts.incidents)
    for name, text in (
        ("planned", "Workers of the role in the plan"),
        ("ready", "Workers of the role that are healthy now"),
        ("min_ready", "Healthy workers of the role below which the deployment is not ready"),
    ):
        family = GaugeMetricFamily(f"launcher_workers_{name}", text, labels=("role",))
        for role, capacity in facts.capacity.items():
            family.add_metric((role,), getattr(capacity, name))
        yield family


def _workers(facts: Facts) -> Iterator[Metric]:
    up = GaugeMetricFamily("launcher_worker_up", "1 while the process is ready and well", labels=WORKER)
    state_is = GaugeMetricFamily(
        "launcher_worker_state", "1 for the state that the process is in", labels=(*WORKER, "state")
    )
    phases = GaugeMetricFamily(
        "launcher_worker_phase_seconds",
        "When the phase of loading was reached, since the start of the process",
        labels=(*WORKER, "phase"),
    )
    restarts = CounterMetricFamily(
        "launcher_worker_restarts", "Restarts by what made them necessary", labels=(*WORKER, "reason")
    )
    kills = CounterMetricFamily(
        "launcher_worker_stop_kills", "Times that it did not stop in time and was killed", labels=WORKER
    )
    gpus = {process.name: ",".join(process.gpus) for process in facts.plan.processes}
    for state in facts.states:
        labels = (state.name, state.role.value, gpus.get(state.name, ""))
        up.add_metric(labels, state.healthy)
        for each in State:
            state_is.add_metric((*labels, each.value), state.state is each)
        for phase, seconds in state.phases.items():
            phases.add_metric((*labels, phase), seconds)
        # All reasons from the start: a counter that appears with its first increment hides it from rate().
        for reason in ("exit", "signal", "hung", "start", "asked"):
            restarts.add_metric((*labels, reason), facts.history.restarts[state.name, reason])
        kills.add_metric(labels, facts.history.killed[state.name])
    yield from (up, state_is, phases, restarts, kills)


def _plumbing(facts: Facts) -> Iterator[Metric]:
    yield _counter(
        "discovery_restored",
        "Registrations of living workers that had expired and were written back",
        facts.restored,
    )
    yield _counter("discovery_withdrawn", "Registrations of dead workers that were removed", facts.withdrawn)
    yield _counter("log_lines", "Lines read from the processes", facts.lines)
    yield _counter("log_lines_dropped", "Lines not shown because stdout was too slow", facts.dropped)


def _scrapes(scrape: Scrape) -> Iterator[Metric]:
    up = GaugeMetricFamily("launcher_scrape_up", "1 where the process gave its metrics", labels=WORKER)
    seconds = GaugeMetricFamily(
        "launcher_scrape_duration_seconds", "Time to fetch its metrics", labels=WORKER
    )
    samples = GaugeMetricFamily("launcher_scrape_samples", "Samples in its metrics", labels=WORKER)
    bad = GaugeMetricFamily(
        "launcher_scrape_bad_lines", "Lines of its metrics left out because they are not valid", labels=WORKER
    )
    conflicts = GaugeMetricFamily(
        "launcher_scrape_conflicting_families",
        "Families left out because another process has them with another type",
        labels=WORKER,
    )
    for index, result in enumerate(scrape.results):
        labels = tuple(result.target.labels.values())
        up.add_metric(labels, result.page is not None)
        seconds.add_metric(labels, result.seconds)
        samples.add_metric(labels, result.page.lines if result.page else 0)
        bad.add_metric(labels, result.page.bad if result.page else 0)
        conflicts.add_metric(labels, len(scrape.merged.dropped.get(index, ())))
    yield from (up, seconds, samples, bad, conflicts)


def _gpus(gpus: Sequence[GpuUse]) -> Iterator[Metric]:
    used = GaugeMetricFamily(
        "launcher_gpu_memory_used_bytes", "Memory in use on the GPU", labels=("gpu", "name")
    )
    total = GaugeMetricFamily("launcher_gpu_memory_bytes", "Memory of the GPU", labels=("gpu", "name"))
    for gpu in gpus:
        used.add_metric((str(gpu.index), gpu.name), gpu.used_mib * 2**20)
        total.add_metric((str(gpu.index), gpu.name), gpu.total_mib * 2**20)
    yield from (used, total)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"launcher_{name}", text, value=float(value))


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"launcher_{name}", text, value=value)
