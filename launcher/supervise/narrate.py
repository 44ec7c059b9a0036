"""Events as lines of the launcher's own log: what a reader of it needs to follow."""

from __future__ import annotations

import signal

from .events import Event, Kind

BAD = (Kind.HUNG, Kind.UNHEALTHY, Kind.SURVIVORS, Kind.KILLED)
UNTOLD = (Kind.WITHDRAWN, Kind.REAPED, Kind.FAILED, Kind.FINISHED)
"""Events that have no line, or one of another kind."""


def narrate(event: Event, asked: bool, *, stopping: bool = False) -> tuple[str, str] | None:
    """The line and its level; None where there is nothing to say. `asked`: it was to be expected.

    `stopping`: the process itself was told to end; how it did is told once, by `drained` or `killed`.
    """
    if event.kind in UNTOLD or not event.process:
        return None
    if event.kind is Kind.EXITED and stopping:
        return None
    text = str(event)
    if event.kind is Kind.STARTED:
        text = f"{event.process} started, pid {event.pid}"
    elif event.kind is Kind.RESTARTING:
        text = f"{event.process} restarts in {event.seconds or 0:.1f} s"
    elif event.kind is Kind.DRAINED and event.exit is not None and event.exit.signal == signal.SIGTERM:
        text = f"{event.process} drained: by SIGTERM"  # it has no handler, and so ended as asked
    elif event.seconds is not None:
        text = f"{text} after {event.seconds:.1f} s"
    bad = event.kind in BAD or (event.kind is Kind.EXITED and not asked)
    return text, "warning" if bad else "info"
