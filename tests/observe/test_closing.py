"""The last line of a run says how it ended."""

from __future__ import annotations

import pytest

from launcher.observe.closing import closing
from launcher.observe.history import History
from launcher.plan.model import Role
from launcher.supervise.events import Event, ExitInfo, Failure, Kind
from launcher.supervise.narrate import narrate


def history(*events: Event) -> History:
    """A run that began to drain at 100 and ended at 109."""
    made = History()
    made.add(Event(Kind.EXITED, "decode-0", exit=ExitInfo(None, 11, 50.0), at=50.0))
    made.add(Event(Kind.DRAINING, at=100.0))
    for event in events:
        made.add(event)
    made.add(Event(Kind.FINISHED, at=109.0))
    return made


def end(kind: Kind, code: int | None = 0, signal: int | None = None, name: str = "decode-0") -> Event:
    return Event(kind, name, exit=ExitInfo(code, signal, 105.0), at=105.0)


@pytest.mark.parametrize(
    ("code", "events", "expected", "level"),
    [
        (0, [end(Kind.EXITED), end(Kind.DRAINED)], "exit code 0, nothing was cut", "info"),
        (0, [end(Kind.DRAINED, None, 15, "events")], "exit code 0, nothing was cut", "info"),
        (0, [end(Kind.DRAINED, 143)], "exit code 0, nothing was cut", "info"),
        (0, [end(Kind.EXITED, None, 11)], "exit code 0, decode-0: killed by SIGSEGV", "warning"),
        (0, [end(Kind.DRAINED, 1)], "exit code 0, decode-0: exit code 1", "warning"),
        (
            0,
            [end(Kind.EXITED, None, 9), end(Kind.KILLED, None, 9), end(Kind.DRAINED, name="events")],
            "exit code 0, nothing was cut, killed while loading: decode-0",
            "info",
        ),
        (
            5,
            [end(Kind.EXITED, None, 9), end(Kind.KILLED, None, 9)],
            "exit code 5, killed: decode-0",
            "warning",
        ),
        (5, [], "exit code 5, killed: everything", "warning"),
    ],
)
def test_a_run_that_was_stopped(code: int, events: list[Event], expected: str, level: str) -> None:
    assert closing(code, history(*events), None, "", 200.0) == (f"stopped after 9.0 s: {expected}", level)


def test_a_run_that_failed_names_the_process_and_the_incident() -> None:
    failure = Failure("decode-1", Role.DECODE, 0, "killed by SIGSEGV; the restart budget is spent", ())
    text, level = closing(4, history(), failure, "/state/incidents/1.json", 200.0)
    assert text == (
        "stopped after 9.0 s: exit code 4, decode-1 failed: killed by SIGSEGV; the restart budget is spent; "
        "incident /state/incidents/1.json"
    )
    assert level == "error"


def test_a_process_that_was_told_to_stop_has_one_line_for_its_end() -> None:
    told = [narrate(event, True, stopping=True) for event in (end(Kind.EXITED), end(Kind.DRAINED))]
    assert told == [None, ("decode-0 drained: exit code 0", "info")]
    assert narrate(end(Kind.DRAINED, None, 15), True, stopping=True) == (
        "decode-0 drained: by SIGTERM",
        "info",
    )
    assert narrate(end(Kind.EXITED), True, stopping=False) == ("decode-0 exited: exit code 0", "info")
