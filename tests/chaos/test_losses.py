"""The rules that excuse a lost request excuse nothing else."""

from __future__ import annotations

from tests.chaos.load import Request
from tests.chaos.losses import FRONTEND, NO_CAPACITY, Fault, Look, explain

ROLES = ["decode", "prefill"]
WHOLE = {"decode-0": "decode", "decode-1": "decode", "prefill-0": "prefill", "prefill-1": "prefill"}


def looks(*changes: tuple[float, dict[str, str], dict[str, int]], until: float = 60.0) -> list[Look]:
    """A look every quarter of a second, with what holds from the times given on."""
    found = []
    for step in range(int(until * 4)):
        at = step / 4
        healthy, routed = next(
            (healthy, routed) for since, healthy, routed in reversed(changes) if since <= at
        )
        found.append(Look(at, healthy, routed))
    return found


def lost(began: float, ended: float, client: int = 0) -> Request:
    return Request(began, client, ended, "cut")


ALL = looks((0, WHOLE, {"decode": 2, "prefill": 2}))
WITHOUT = {name: role for name, role in WHOLE.items() if name != "decode-0"}


def test_a_killed_frontend_costs_each_client_one_request() -> None:
    faults, charged = [Fault(10.0, "frontend", "frontend", "frontend")], set[tuple[float, int]]()
    assert explain(lost(9.5, 10.01), faults, ALL, ROLES, charged) == FRONTEND
    assert explain(lost(10.03, 10.05), faults, ALL, ROLES, charged) == ""
    assert explain(lost(9.5, 10.01, client=1), faults, ALL, ROLES, charged) == FRONTEND
    assert explain(lost(9.5, 9.9, client=2), faults, ALL, ROLES, charged) == ""
    assert explain(lost(11.0, 11.1, client=3), faults, ALL, ROLES, charged) == ""
    assert explain(lost(9.5, 40.0, client=4), faults, ALL, ROLES, charged) == "", "it stalled long after"


def test_a_frontend_that_takes_its_time_to_die_takes_what_came_meanwhile() -> None:
    slow = [Fault(10.0, "frontend", "frontend", "frontend", gone_s=0.6)]
    assert explain(lost(10.4, 10.6), slow, ALL, ROLES, set()) == FRONTEND
    assert explain(lost(10.7, 10.8), slow, ALL, ROLES, set()) == ""


def test_a_worker_s_death_excuses_nothing_while_another_is_there() -> None:
    faults = [Fault(10.0, "KILL", "decode-0", "decode")]
    assert explain(lost(9.5, 10.1), faults, ALL, ROLES, set()) == ""


def test_the_death_of_the_last_one_excuses_until_one_is_back() -> None:
    seen = looks(
        (0, WHOLE, {"decode": 2, "prefill": 2}),
        (10.2, WITHOUT, {"decode": 1, "prefill": 2}),
        (12.2, {"prefill-0": "prefill"}, {"decode": 0, "prefill": 2}),
        (15, WITHOUT, {"decode": 1, "prefill": 2}),
    )
    faults = [Fault(10.0, "KILL", "decode-0", "decode"), Fault(12.0, "STOP", "decode-1", "decode")]
    assert explain(lost(11.0, 11.5), faults, seen, ROLES, set()) == ""
    assert explain(lost(11.9, 12.1), faults, seen, ROLES, set()) == NO_CAPACITY
    assert explain(lost(14.0, 14.1), faults, seen, ROLES, set()) == NO_CAPACITY
    assert explain(lost(18.0, 18.1), faults, seen, ROLES, set()) == ""


def test_healthy_is_not_routed_to() -> None:
    seen = looks((0, WHOLE, {"decode": 1, "prefill": 2}))
    faults = [Fault(10.0, "TERM", "decode-0", "decode")]
    assert explain(lost(9.9, 10.1), faults, seen, ROLES, set()) == NO_CAPACITY


def test_two_faults_between_two_looks() -> None:
    faults = [Fault(10.05, "KILL", "decode-0", "decode"), Fault(10.1, "KILL", "decode-1", "decode")]
    assert explain(lost(9.9, 10.2), faults, ALL, ROLES, set()) == NO_CAPACITY


def test_other_faults_excuse_nothing() -> None:
    for kind in ("restart", "broker", "freeze"):
        assert explain(lost(9.9, 10.2), [Fault(10.0, kind, "decode-0", "decode")], ALL, ROLES, set()) == ""
