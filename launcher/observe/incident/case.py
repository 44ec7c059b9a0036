"""One failure from its first sign to its outcome, as the document that is written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.observe.incident.first_cause import first_error
from launcher.plan.model import Plan
from launcher.supervise.events import Event, Kind, ProcessState
from launcher.supervise.logs import stamp

LINES = 100
"""Last lines of a process that an incident keeps."""
TIMELINE = 100
"""Events that it keeps, the newest."""
BEFORE_S = 60.0
"""How far back the events of other processes are told."""
Record = tuple[float, str, str]
"""Time (since the epoch), stream, line."""


@dataclass(slots=True)
class Case:
    """`process` is empty where the deployment as a whole failed."""

    id: str
    kind: str
    """`death`, `hang`, `start` (died before it was ever ready), `run`."""
    opened: Event
    state: ProcessState | None
    """The process as it was at the first sign."""
    others: Sequence[ProcessState]
    reason: str = ""
    """Why the deployment failed, for `run`."""
    oom: bool = False
    """The kernel has killed for want of memory since the case before."""
    follows: Case | None = None
    exit: Event | None = None
    outcome: str = ""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """Process to its last lines; not overwritten by those of the next incarnation."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What is looked up in a thread: GPU memory, versions."""

    @property
    def process(self) -> str:
        return self.opened.process

    @property
    def first(self) -> Case:
        """The failure that this one follows, directly or not; itself where it follows none."""
        return self if self.follows is None else self.follows.first

    @property
    def since(self) -> float:
        """Start of the process (seconds since the epoch), or of the time that matters."""
        started = self.state.started_at if self.state is not None else None
        return self.opened.wall - (self.opened.at - started if started else BEFORE_S)

    def what(self) -> str:
        """The failure in one sentence."""
        if self.kind == "run":
            return self.reason
        if self.kind == "hang":
            text = f"{self.process} hung: {self.opened.detail}"
        elif self.exit is not None and self.exit.exit is not None and self.exit.exit.signal is not None:
            text = f"{self.process} was {self.exit.exit}"
        else:
            text = f"{self.process} ended: {self.exit.exit if self.exit else 'unknown'}"
        if self.oom:
            text += " (out of memory: the kernel killed a process here)"
        return f"{text}, {self._age()}"

    def _age(self) -> str:
        state = self.state
        if state is None or state.started_at is None:
            return "before it had started"
        if state.ready_at is not None:
            return f"{self.opened.at - state.ready_at:.1f} s after it was ready"
        phase = f" ({state.phase})" if state.phase else ""
        return f"{self.opened.at - state.started_at:.1f} s after its start and before it was ready{phase}"

    def read(self, name: str, lines: Sequence[Record]) -> None:
        """Take the last lines of a process; of the one that failed, those since its start."""
        since = self.since - 0.001 if name == self.process else 0.0
        self.records[name] = [record for record in lines if record[0] >= since][-LINES:]

    def document(self, plan: Plan, events: Iterable[Event]) -> dict[str, Any]:
        """The case as it is known now."""
        known = list(events)
        state = self.state
        return {
            "id": self.id,
            "time": stamp(self.opened.wall),
            "wall": self.opened.wall,
            "kind": self.kind,
            "process": self.process,
            "role": self.opened.role.value if self.opened.role and self.process else "",
            "incarnation": self.opened.incarnation,
            "what": self.what(),
            "first_cause": self._first_cause(known),
            "follows": self.follows.id if self.follows else None,
            "exit": self.exit.exit.to_json() if self.exit and self.exit.exit else None,
            "outcome": self.outcome,
            "simulated": plan.simulated,
            "target": plan.target,
            "plan": {
                "hash": plan.hash(),
                "target": plan.target,
                "engine": plan.engine,
                "model": plan.model,
                "argv": list(plan.process(self.process).argv) if self.process else None,
            },
            "state": state.to_json() if state else None,
            "processes": [each.to_json() for each in self.others],
            "timeline": self._timeline(known),
            "last_lines": {
                name: [{"time": at, "stream": stream, "line": line} for at, stream, line in lines]
                for name, lines in self.records.items()
            },
            **self.extra,
        }

    def first_event(self, events: Iterable[Event]) -> Event:
        """The first sign of this failure: bad health counts where the process did not recover from it."""
        first: Event | None = None
        for event in events:
            if event.process != self.process or event.incarnation != self.opened.incarnation:
                continue
            if event.kind in (Kind.RECOVERED, Kind.HEALTHY, Kind.STARTED):
                first = None
            elif event.kind in (Kind.UNHEALTHY, Kind.HUNG, Kind.EXITED) and first is None:
                first = event
        return first or self.opened

    def _first_cause(self, events: list[Event]) -> dict[str, Any]:
        case = self.first
        event = case.first_event(events)
        cause = {
            "process": case.process,
            "time": stamp(event.wall),
            "what": str(event) if event.process else case.what(),
        }
        for name, lines in case.records.items():
            if line := first_error([text for _, _, text in lines]):
                return cause | {"process": name, "line": line}
        return cause

    def _timeline(self, events: list[Event]) -> list[dict[str, Any]]:
        chosen = [
            event
            for event in events
            if event.process == self.process or event.wall >= self.opened.wall - BEFORE_S or not event.process
            if event.process != self.process or event.incarnation >= self.opened.incarnation
        ]
        return [event.to_json() | {"text": str(event)} for event in chosen[-TIMELINE:]]
