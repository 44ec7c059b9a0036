"""Who answers its health page and does no work: the judgement, and how workers are asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from launcher.observe.exposition import parse
from launcher.plan.model import Canary, Role
from launcher.prove.canary import SETTLED_LOOKS, Judge, Reading, Watcher, read
from launcher.prove.frontend import Answer, Frontend, Instance
from launcher.supervise.events import ProcessState, State
from tests.supervise.conftest import plan_of

CANARY = Canary(interval_s=10.0, timeout_s=30.0, failures=3)


def judge(*readings: tuple[float, float], asked: bool = True, elapsed_s: float = 10.0) -> Judge:
    """A judge that has seen these (progress, requests in hand), each an interval after the other."""
    found = Judge(CANARY)
    for progress, in_hand in readings:
        found.see(Reading(progress, in_hand), elapsed_s)
        found.asked = asked
    return found


def test_work_in_hand_without_progress_is_a_death() -> None:
    assert not judge(*[(7, 1)] * 3).verdict(900.0)
    assert "no progress in 30 s" in judge(*[(7, 1)] * 4).verdict(900.0)


@pytest.mark.parametrize(
    ("readings", "asked"),
    [
        ([(number, 100) for number in range(50)], True),  # full load: it answers, however slowly
        ([(7, 0)] * 50, True),  # a frontend that is too busy to pass the canary on
        ([(7, 1)] * 50, False),  # a gauge that leaks, and no frontend to send a canary by
        ([*([(7, 1)] * 3), *([(8, 1)] * 3), *([(9, 1)] * 3)], True),  # long steps, each shorter than the deadline
    ],
)  # fmt: skip
def test_no_false_alarm(readings: list[tuple[float, float]], asked: bool) -> None:
    assert not judge(*readings, asked=asked).verdict(900.0)


def test_who_has_never_done_anything_may_still_be_loading() -> None:
    assert not judge(*[(0, 1)] * 90).verdict(900.0)
    assert "no progress in 900 s" in judge(*[(0, 1)] * 91).verdict(900.0)


def test_a_pause_of_our_own_is_no_time_in_which_it_could_have_worked() -> None:
    assert not judge((7, 1), (7, 1), elapsed_s=3600.0).verdict(900.0)


def test_who_works_is_not_asked() -> None:
    found = Judge(CANARY)
    assert found.see(Reading(1, 0), 10)  # the first look: nothing is known
    assert not found.see(Reading(2, 5), 10)
    assert found.see(Reading(2, 0), 10)


def test_errors_count_in_a_row_and_refusals_do_not() -> None:
    found = Judge(CANARY)
    error = Answer(500, {"message": "no"})
    for answer in (error, error, Answer(200, {}), error, error):
        found.answered(answer)
    for status in (0, 400, 404, 429, 503):
        found.answered(Answer(status, None))
    assert not found.verdict(900.0)
    found.answered(error)
    assert "3 small requests in a row failed" in found.verdict(900.0)


PAGE = """
dynamo_component_response_bytes_total{dynamo_endpoint="generate",worker_id="a"} 100
dynamo_component_response_bytes_total{dynamo_endpoint="clear_kv_blocks",worker_id="a"} 7
dynamo_component_inflight_requests{dynamo_endpoint="generate",worker_id="a"} 2
dynamo_component_inflight_requests{dynamo_endpoint="clear_kv_blocks",worker_id="a"} 1
"""


def test_reading_a_page() -> None:
    assert read(parse(PAGE)) == Reading(100, 2)
    # Where the engine counts tokens, an answer that is an error is no progress.
    assert read(parse(PAGE + "vllm:generation_tokens_total{engine=\"0\"} 5\n")) == Reading(5, 2)  # fmt: skip


WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")


@dataclass
class Stub:
    """A frontend and two workers of each role as far as the watcher asks. Counters move when a request is answered."""

    stuck: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    unlisted: bool = False
    known: bool = True
    """Whether the frontend knows the model."""
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WORKERS, 5))
    held: dict[str, int] = field(default_factory=dict)
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    condemned: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        old = time.monotonic() - 1000
        names = ["frontend", *WORKERS]
        self.states = [
            ProcessState(
                name, Role(name.partition("-")[0]), 1, State.READY, "ready", {}, 0,
                {"rpc": 100 + place, "system": 200 + place}, old, old, None, True,
            )
            for place, name in enumerate(names)
        ]  # fmt: skip
        self.names = dict(enumerate(names))

    async def metrics(self, url: str) -> Any:
        name = self.names[int(url.rpartition(":")[2].partition("/")[0]) - 200]
        return parse(
            f'dynamo_component_response_bytes_total{{dynamo_endpoint="generate"}} {self.done.get(name, 0)}\n'
            f'dynamo_component_inflight_requests{{dynamo_endpoint="generate"}} {self.held.get(name, 0)}\n'
        )

    async def instances(self) -> tuple[list[Instance] | None, str]:
        if self.unlisted:
            return None, "no answer"
        return [Instance(place, "backend", "127.0.0.1", 100 + place) for place in self.names], ""

    async def model_page(self) -> Answer:
        return Answer(200 if self.known else 404, None)

    async def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        self.requests.append(body)
        for name in (self.names[number] for number in body["nvext"].values()):
            if name in self.stuck:
                self.held[name] = self.held.get(name, 0) + 1
                await asyncio.sleep(3600)
            self.done[name] = self.done.get(name, 0) + 10
            if name in self.broken:
                return Answer(500, {"message": "the engine is gone"})
        return Answer(200, {})

    def looks(self, count: int, late_s: float = 0.0) -> list[str]:
        """Let the watcher look so often; returns who was condemned."""
        canary = Canary(interval_s=0.01, timeout_s=0.05, failures=3)

        async def main() -> None:
            plan = replace(plan_of(), canary=canary)
            frontend: Frontend = self  # type: ignore[assignment]
            watcher = Watcher(
                plan, frontend, lambda: self.states, lambda *told: self.condemned.append(told), lambda: late_s
            )
            for _ in range(count):
                await watcher.look()
                await asyncio.sleep(canary.interval_s)

        asyncio.run(main())
        return [name for name, _ in self.condemned]


def test_idle_workers_are_asked_by_their_ids_and_left_alone() -> None:
    stub = Stub()
    assert stub.looks(20) == []
    asked = [request["nvext"] for request in stub.requests]
    assert {pins["prefill_worker_id"] for pins in asked} == {1, 2}
    assert {pins["decode_worker_id"] for pins in asked} == {3, 4}


@pytest.mark.parametrize("name", ["prefill-0", "prefill-1", "decode-0", "decode-1"])
def test_a_stuck_worker_is_found_and_its_partners_are_not_blamed(name: str) -> None:
    stub = Stub(stuck={name})
    found = stub.looks(12)
    assert set(found) == {name}


@pytest.mark.parametrize("name", ["prefill-0", "decode-1"])
def test_a_worker_that_fails_every_request_is_found(name: str) -> None:
    stub = Stub()
    stub.looks(2)  # requests such as ours are answered here
    stub.broken = {name}
    assert stub.looks(14)[:1] == [name]


def test_where_no_canary_was_ever_answered_errors_prove_nothing() -> None:
    assert Stub(broken={"prefill-0", "prefill-1", "decode-0", "decode-1"}).looks(30) == []


def test_a_worker_that_is_not_routed_to_yet_is_not_blamed_for_errors() -> None:
    stub = Stub(broken={"decode-0"})
    young = time.monotonic() + 1000
    stub.states = [
        replace(state, ready_at=young if state.name == "decode-0" else state.ready_at)
        for state in stub.states
    ]
    assert SETTLED_LOOKS > 1
    assert stub.looks(30) == []


def test_nobody_is_asked_for_a_model_that_the_frontend_does_not_know() -> None:
    stub = Stub(known=False)
    assert stub.looks(10) == []
    assert stub.requests == []


def test_nothing_is_judged_while_we_are_late_ourselves_or_nobody_can_ask() -> None:
    assert Stub(stuck={"decode-0"}).looks(20, late_s=5.0) == []
    assert Stub(unlisted=True, held={"decode-0": 3}).looks(20) == []


def test_who_loads_is_not_asked() -> None:
    stub = Stub(stuck={"decode-0"})
    stub.states = [replace(state, healthy=False) for state in stub.states]
    assert stub.looks(20) == []
    assert stub.requests == []
