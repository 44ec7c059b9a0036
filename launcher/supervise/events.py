"""What supervision reports: typed events as things happen, and the state of each process on request."""

from __future__ import annotations

import enum
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.plan.model import Role

STOPPED = "stopped by a signal (SIGSTOP)"
"""How the `detail` of a process that stands still begins."""


class State(enum.StrEnum):
    """Where a process is in its life."""

    WAITING = "waiting"
    """Not started yet: another process fills the cache that it shares."""
    STARTING = "starting"
    LOADING = "loading"
    """A phase of loading was announced in the log."""
    READY = "ready"
    DRAINING = "draining"
    BACKOFF = "backoff"
    STOPPED = "stopped"
    FAILED = "failed"


class Kind(enum.StrEnum):
    """What an event says."""

    STARTED = "started"
    PHASE = "phase"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """A probe failed or the process is stopped; `detail` says which. Not yet a death."""
    RECOVERED = "recovered"
    """Well again after `unhealthy`, without a restart."""
    HUNG = "hung"
    """Taken for dead although it runs; `detail` says why."""
    EXITED = "exited"
    WITHDRAWN = "withdrawn"
    """The `on_death` hook has returned."""
    REAPED = "reaped"
    """Nothing of the process's tree is left."""
    SURVIVORS = "survivors"
    """Something of the tree outlived SIGKILL; `detail` names it."""
    RESTARTING = "restarting"
    FAILED = "failed"
    """Not started again: the run ends with exit code 4; `detail` says why."""
    DRAINING = "draining"
    """The whole deployment stops (`process` is empty), or one process was told to."""
    DRAINED = "drained"
    """The process ended by itself after being told to."""
    KILLED = "killed"
    """The process did not end in time and was killed."""
    FINISHED = "finished"
    """The run is over; `detail` holds the exit code."""


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How a process ended: `code` for an exit, `signal` for a death by signal; the other is None."""

    code: int | None
    signal: int | None
    at: float
    """Monotonic seconds."""
    wall: float = field(default_factory=time.time)
    """Seconds since the epoch."""

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"killed by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"killed by signal {self.signal}"

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "signal": self.signal, "time": self.wall, "text": str(self)}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `process` is empty for events of the whole deployment."""

    kind: Kind
    process: str = ""
    role: Role | None = None
    incarnation: int = 0
    detail: str = ""
    pid: int | None = None
    exit: ExitInfo | None = None
    seconds: float | None = None
    """For `phase` and `healthy`: since the start of the process. For `restarting`: until it starts."""
    at: float = field(default_factory=time.monotonic)
    """Monotonic seconds."""
    wall: float = field(default_factory=time.time)
    """Seconds since the epoch."""

    def to_json(self) -> dict[str, Any]:
        """The event as an object for /status and incident files; empty fields are left out."""
        fields: dict[str, Any] = {
            "time": self.wall,
            "kind": self.kind.value,
            "process": self.process,
            "role": self.role.value if self.role else "",
            "incarnation": self.incarnation if self.process else None,
            "pid": self.pid,
            "detail": self.detail,
            "exit": self.exit.to_json() if self.exit else None,
            "seconds": round(self.seconds, 3) if self.seconds is not None else None,
        }
        return {key: value for key, value in fields.items() if value not in (None, "")}

    def __str__(self) -> str:
        parts = [f"{self.process} {self.kind.value}" if self.process else self.kind.value]
        if self.exit is not None:
            parts.append(str(self.exit))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run ends with exit code 4."""

    process: str
    role: Role
    incarnation: int
    reason: str
    last_lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process as /status shows it. Times are monotonic seconds; phases are seconds since its start."""

    name: str
    role: Role
    pid: int | None
    state: State
    phase: str
    phases: Mapping[str, float]
    restarts: int
    ports: Mapping[str, int]
    started_at: float | None
    ready_at: float | None
    last_exit: ExitInfo | None
    healthy: bool
    incarnation: int = 0
    detail: str = ""
    """Why it is not healthy, in words."""

    def to_json(self) -> dict[str, Any]:
        ready = self.ready_at - self.started_at if self.ready_at and self.started_at else None
        return {
            "name": self.name,
            "role": self.role.value,
            "pid": self.pid,
            "state": self.state.value,
            "phase": self.phase,
            "phases": {name: round(seconds, 3) for name, seconds in self.phases.items()},
            "restarts": self.restarts,
            "incarnation": self.incarnation,
            "ports": dict(self.ports),
            "uptime_s": round(time.monotonic() - self.started_at, 3)
            if self.started_at and self.pid
            else None,
            "ready_s": round(ready, 3) if ready is not None else None,
            "last_exit": self.last_exit.to_json() if self.last_exit else None,
            "healthy": self.healthy,
            "detail": self.detail,
        }
