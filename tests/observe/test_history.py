"""What is counted from events: restarts by reason, faults that nobody asked for, the drain."""

from __future__ import annotations

import pytest

from launcher.observe.history import History
from launcher.plan.model import Role
from launcher.supervise.events import Event, ExitInfo, Kind
from tests.observe.support import killed


def event(kind: Kind, process: str = "decode-0", **changes: object) -> Event:
    return Event(kind, process, Role.DECODE if process else None, **changes)  # type: ignore[arg-type]


STARTED, RESTARTING = event(Kind.STARTED), event(Kind.RESTARTING, seconds=0.5)
EXITED = event(Kind.EXITED, exit=ExitInfo(1, None, 0.0))
SIGNALLED = event(Kind.EXITED, exit=killed())


@pytest.mark.parametrize(
    ("events", "reason", "faults"),
    [
        ([STARTED, EXITED, RESTARTING], "exit", 1),
        ([STARTED, SIGNALLED, RESTARTING], "signal", 1),
        ([STARTED, event(Kind.HUNG), SIGNALLED, RESTARTING], "hung", 1),
        ([STARTED, event(Kind.DRAINING), SIGNALLED, event(Kind.DRAINED), RESTARTING], "asked", 0),
        ([event(Kind.EXITED, exit=ExitInfo(127, None, 0.0)), RESTARTING], "start", 1),
    ],
)
def test_a_restart_has_a_reason(events: list[Event], reason: str, faults: int) -> None:
    history = History()
    for each in events:
        history.add(each)
    assert dict(history.restarts) == {("decode-0", reason): 1}
    assert len(history.faults) == faults


def test_the_next_death_has_its_own_reason() -> None:
    history = History()
    for each in [STARTED, event(Kind.DRAINING), SIGNALLED, RESTARTING, STARTED, EXITED, RESTARTING]:
        history.add(each)
    assert history.restarts == {("decode-0", "asked"): 1, ("decode-0", "exit"): 1}


def test_ends_in_a_drain_are_no_faults_but_a_crash_is() -> None:
    history = History()
    for each in [
        event(Kind.DRAINING, "", at=100.0),
        event(Kind.DRAINING, "frontend"),
        event(Kind.EXITED, "frontend", exit=ExitInfo(0, None, 0.0)),
        event(Kind.EXITED, "decode-0", exit=killed(9)),  # a second request to stop kills whatever still runs
        event(Kind.EXITED, "decode-1", exit=killed(11)),
        event(Kind.FINISHED, "", at=103.0),
    ]:
        history.add(each)
    assert [fault.process for fault in history.faults] == ["decode-1"]
    assert history.drain.seconds(999.0) == 3.0


def test_memory_is_bounded() -> None:
    history = History()
    for _ in range(10_000):
        history.add(event(Kind.UNHEALTHY))
    assert len(history.events) <= 500
    assert len(history.faults) <= 50
