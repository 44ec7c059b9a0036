"""What has happened in this run: the newest events, and what can be counted from them. Pure."""

from __future__ import annotations

import signal
from collections import Counter, deque
from dataclasses import dataclass

from launcher.supervise.events import Event, Kind

KEPT = 500
"""Events remembered; a restart of a worker makes some seven."""
FAULTS = 50
"""Of those that nobody asked for."""
_BAD = (Kind.UNHEALTHY, Kind.HUNG, Kind.SURVIVORS, Kind.FAILED)


@dataclass(slots=True)
class Drain:
    """When the deployment was told to end, and when nothing of it was left (monotonic seconds)."""

    began: float | None = None
    ended: float | None = None

    def seconds(self, now: float) -> float:
        """How long the drain has taken so far; 0 before it began."""
        return 0.0 if self.began is None else (self.ended if self.ended is not None else now) - self.began


class History:
    """Give every event to `add`, in order."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=KEPT)
        self.faults: deque[Event] = deque(maxlen=FAULTS)
        """Events that nobody asked for: deaths, hangs, failures, bad health."""
        self.restarts: Counter[tuple[str, str]] = Counter()
        """(process, reason) to the restarts begun so far. Reasons: `exit`, `signal`, `hung`, `asked`, and `start`
        where the program could not be started."""
        self.killed: Counter[str] = Counter()
        """Process to how often it did not stop in time and had to be killed."""
        self.drain = Drain()
        self._reason: dict[str, str] = {}
        self._running: set[str] = set()

    def add(self, event: Event) -> None:
        """Remember and count."""
        if self.is_fault(event):
            self.faults.append(event)
        self.events.append(event)
        name = event.process
        match event.kind:
            case Kind.STARTED:
                self._reason.pop(name, None)
                self._running.add(name)
            case Kind.DRAINING if name:
                self._reason[name] = "asked"
            case Kind.DRAINING:
                self.drain.began = event.at
            case Kind.FINISHED:
                self.drain.ended = event.at
            case Kind.KILLED:
                self.killed[name] += 1
            case Kind.HUNG:
                self._reason[name] = "hung"
            case Kind.EXITED:
                self._reason.setdefault(name, self._exit_reason(event))
                self._running.discard(name)
            case Kind.RESTARTING:
                self.restarts[name, self._reason.pop(name, "exit")] += 1

    def is_fault(self, event: Event) -> bool:
        """Whether nobody asked for this; ask before `add`."""
        if event.kind is not Kind.EXITED:
            return event.kind in _BAD
        if self._reason.get(event.process) in ("asked", "hung"):
            return False
        # During a drain SIGKILL is ours: the second request to stop. Anything else before its turn is a crash.
        killed = event.exit is not None and event.exit.signal == signal.SIGKILL
        return self.drain.began is None or not killed

    def _exit_reason(self, event: Event) -> str:
        if event.process not in self._running:
            return "start"
        return "signal" if event.exit is not None and event.exit.signal is not None else "exit"
