"""Events as lines of the launcher's own log: what a reader of it needs to follow."""

from __future__ import annotations

from .events import Event, Kind

BAD = (Kind.HUNG, Kind.UNHEALTHY, Kind.SURVIVORS, Kind.KILLED)
UNTOLD = (Kind.WITHDRAWN, Kind.REAPED, Kind.FAILED, Kind.FINISHED)
"""Events that have no line, or one of another kind."""


def narrate(event: Event, asked: bool) -> tuple[str, str] | None:
    """The line and its level; None where there is nothing to say. `asked`: the process was told to end."""
    if event.kind in UNTOLD or not event.process:
        return None
    text = str(event)
    if event.kind is Kind.STARTED:
        text = f"{event.process} started, pid {event.pid}"
    elif event.kind is Kind.RESTARTING:
        text = f"{event.process} restarts in {event.seconds or 0:.1f} s"
    elif event.seconds is not None:
        text = f"{text} after {event.seconds:.1f} s"
    bad = event.kind in BAD or (event.kind is Kind.EXITED and not asked)
    return text, "warning" if bad else "info"
