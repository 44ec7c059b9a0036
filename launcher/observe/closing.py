"""The launcher's last line: how the run ended, and what that cost. Pure."""

from __future__ import annotations

import signal

from launcher.findings import Exit
from launcher.observe.history import History
from launcher.supervise.events import Event, Failure, Kind

AS_ASKED = (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit codes of a program that ended because it was told to."""


def closing(
    code: int, history: History, failure: Failure | None, incident: str, now: float, trouble: str = ""
) -> tuple[str, str]:
    """The line and its level. `incident`: the file of the failure, where there is one; `now` in monotonic seconds;
    `trouble`: what else is wrong, and may be why."""
    text = f"stopped after {history.drain.seconds(now):.1f} s: exit code {code}, "
    if failure is not None:
        why = f"{failure.process} failed: {failure.reason}" if failure.process else failure.reason
        also = f"; {trouble}" if trouble else ""
        return f"{text}{why}{also}{f'; incident {incident}' if incident else ''}", "error"
    events = [event for event in history.events if event.at >= (history.drain.began or 0.0)]
    if code == Exit.KILLED:
        killed = dict.fromkeys(event.process for event in events if _was_killed(event))
        return f"{text}killed: {', '.join(killed) or 'everything'}", "warning"
    # Killed, and the exit code is not that of a killed process: they had nothing in hand.
    loading = [event.process for event in events if event.kind is Kind.KILLED]
    bad = {event.process: str(event.exit) for event in events if _was_bad(event)}
    told = [f"{name}: {how}" for name, how in bad.items() if name not in loading]
    cut = "; ".join(told) or "nothing was cut"
    unready = f", killed while loading: {', '.join(loading)}" if loading else ""
    return f"{text}{cut}{unready}", "warning" if told else "info"


def _was_killed(event: Event) -> bool:
    return event.kind is Kind.KILLED or (
        event.kind is Kind.EXITED and event.exit is not None and event.exit.signal == signal.SIGKILL
    )


def _was_bad(event: Event) -> bool:
    if event.kind not in (Kind.EXITED, Kind.DRAINED) or event.exit is None:
        return False
    if event.exit.signal is not None:
        return event.exit.signal not in (signal.SIGTERM, signal.SIGINT)
    return event.exit.code not in AS_ASKED
