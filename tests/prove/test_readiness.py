"""Why a deployment is not ready, in words."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.plan.model import Role
from launcher.prove.frontend import Answer
from launcher.prove.readiness import Readiness, describe
from launcher.supervise.events import ProcessState, State


@pytest.mark.parametrize(
    ("state", "phase", "pid", "detail", "expected"),
    [
        (State.READY, "ready", None, "killed by SIGKILL", "x died: killed by SIGKILL"),
        (State.LOADING, "weights", None, "exit code 1", "x died: exit code 1"),
        (State.READY, "ready", 7, "stopped by a signal (SIGSTOP)", "x is stopped (SIGSTOP)"),
        (
            State.READY,
            "ready",
            7,
            "stopped by a signal (SIGSTOP) for 5.01 s",
            "x is stopped (SIGSTOP) for 5.01 s",
        ),
        (State.READY, "ready", 7, "no answer in 2 s", "x is unwell: no answer in 2 s"),
        (
            State.BACKOFF,
            "restarts in 0.5 s",
            None,
            "killed by SIGKILL",
            "x restarts in 0.5 s (killed by SIGKILL)",
        ),
        (State.WAITING, "waiting for y to fill the cache", None, "", "x is waiting for y to fill the cache"),
        (State.LOADING, "weights", 7, "", "x is loading (weights)"),
        (State.STARTING, "", 7, "", "x is starting"),
        (State.FAILED, "", None, "exit code 1", "x failed: exit code 1"),
        (State.DRAINING, "ready", 7, "", "x is draining"),
    ],
)
def test_a_process_that_is_not_well_is_told_of_without_contradiction(
    state: State, phase: str, pid: int | None, detail: str, expected: str
) -> None:
    told = ProcessState(
        "x", Role.DECODE, pid, state, phase, {}, 0, {}, 0.0, 1.0, None, healthy=False, detail=detail
    )
    assert describe(told) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (None, "HTTP 503"),
        ("down", "HTTP 503: down"),
        ({"error": {"message": "Model not found", "code": 404}}, "HTTP 503: Model not found"),
        ({"message": "Service not ready", "code": 503}, "HTTP 503: Service not ready"),
        ({"instances": ["x" * 200]}, 'HTTP 503: {"instances": ["' + "x" * 64 + "..."),
    ],
)
def test_an_answer_is_told_in_few_words(body: object, expected: str) -> None:
    assert str(Answer(503, body)) == expected


def test_the_log_says_who_is_waited_for_and_not_each_phase_again() -> None:
    said: list[str] = []
    nobody: Any = None
    readiness = Readiness(nobody, nobody, nobody, lambda: (), said.append)
    for reasons in (
        ["a is starting", "b is starting"],
        ["a is loading (weights)", "b is starting"],
        ["a is loading (graphs)", "b is loading (weights)"],
        ["b is loading (graphs)"],
        ["b died: killed by SIGKILL"],
        ["b restarts in 0.5 s (killed by SIGKILL)"],
        ["b is loading (weights)"],
    ):
        readiness._set(reasons)
        assert readiness.reasons == reasons
    assert said == [
        "waiting for: a is starting; b is starting",
        "waiting for: b is loading (graphs)",
        "waiting for: b died: killed by SIGKILL",
        "waiting for: b restarts in 0.5 s (killed by SIGKILL)",
        "waiting for: b is loading (weights)",
    ]
