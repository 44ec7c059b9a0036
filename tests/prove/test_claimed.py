"""Which proof a claim takes, and where it does not apply."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from launcher.plan.model import WORKER_ROLES, Plan
from launcher.prove import kv_routing
from launcher.prove.claimed import Claimed
from launcher.prove.proof import Outcome, Proof
from launcher.supervise.events import ProcessState, State
from tests.prove.fake import Fake, Worker, serving
from tests.support.plans import plan

AGGREGATED = (
    "workers.prefill.count=0",
    "workers.decode.count=0",
    "workers.aggregated.count=2",
    "kv.block_size=16",
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_routing, "SETTLE_S", (0.0,))


def states(made: Plan) -> list[ProcessState]:
    return [
        ProcessState(
            process.name, process.role, 1, State.READY, "", {}, 0, process.ports, 0.0, 1.0, None, healthy=True
        )
        for process in made.processes
    ]


def fake_of(made: Plan, **faults: Any) -> Fake:
    workers = [process for process in made.processes if process.role in WORKER_ROLES]
    return Fake(
        [
            Worker(
                100 + index, "prefill" if process.role.value == "prefill" else "backend", process.ports["rpc"]
            )
            for index, process in enumerate(workers)
        ],
        **faults,
    )


def tried(made: Plan, fake: Fake, what: Callable[[Claimed], Any]) -> Sequence[Proof]:
    async def run() -> Sequence[Proof]:
        async with serving(fake) as frontend:
            found: Sequence[Proof] = await what(Claimed(made, frontend, lambda: states(made)))
            return found

    return asyncio.run(run())


def test_kv_routing_over_the_planned_workers() -> None:
    made = plan("sim", *AGGREGATED)
    [proof] = tried(made, fake_of(made), lambda claimed: claimed.kv_routing())
    assert proof.outcome is Outcome.PASSED
    assert set(proof.figures["workers"]) == {"aggregated-0", "aggregated-1"}


def test_a_worker_that_the_frontend_does_not_see() -> None:
    made = plan("sim", *AGGREGATED)
    fake = fake_of(made)
    del fake.workers[1]
    [proof] = tried(made, fake, lambda claimed: claimed.kv_routing())
    assert proof.text == "aggregated-1 is not seen by the frontend"


def test_a_frontend_that_was_told_to_predict() -> None:
    made = plan("sim")
    frontend = made.process("frontend")
    told = dataclasses.replace(frontend, argv=(*frontend.argv, "--no-router-kv-events"))
    others = [process for process in made.processes if process.name != "frontend"]
    made = dataclasses.replace(made, processes=(told, *others))
    [proof] = tried(made, fake_of(made), lambda claimed: claimed.kv_routing())
    assert "it predicts what is cached" in proof.text
    assert proof.final


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (("router.mode=round-robin",), "the router does not go by KV events"),
        (("router.approximate=true",), "the router does not go by KV events"),
        (("proofs.kv_routing=skip",), "switched off"),
    ],
)
def test_where_kv_routing_does_not_apply(sets: tuple[str, ...], why: str) -> None:
    made = plan("sim", *sets)
    [proof] = tried(made, fake_of(made), lambda claimed: claimed.kv_routing())
    assert (proof.outcome, proof.text) == (Outcome.SKIPPED, why)


def test_transfer_needs_two_roles() -> None:
    made = plan("sim", *AGGREGATED)
    [proof] = tried(made, fake_of(made), lambda claimed: claimed.transfer())
    assert proof.text == "aggregated: nothing is handed over"
    made = plan("sim")
    proofs = tried(made, fake_of(made), lambda claimed: claimed.transfer())
    assert [proof.name for proof in proofs] == ["KV transfer", "fast lane"]
    made = plan("sim", "proofs.fast_lane=skip")
    assert [proof.name for proof in tried(made, fake_of(made), lambda claimed: claimed.transfer())] == [
        "KV transfer"
    ]


@pytest.mark.parametrize(
    ("engine", "sets", "outcome"),
    [
        ("echo", (), Outcome.FAILED),
        # Whoever lets the model off the tool call lets it say nothing.
        ("echo", ("proofs.tool_call=warn",), Outcome.PASSED),
        ("mocker", (), Outcome.PASSED),
    ],
)
def test_what_a_completion_must_say(engine: str, sets: tuple[str, ...], outcome: Outcome) -> None:
    made = plan("sim", *sets, engine=engine)
    fake = fake_of(made, message={"content": None}, finish_reason="length")
    [proof] = tried(made, fake, lambda claimed: claimed.completion())
    assert proof.outcome is outcome


def test_policies() -> None:
    async def run() -> list[str]:
        fake = fake_of(made)
        async with serving(fake) as frontend:
            claimed = Claimed(made, frontend, lambda: states(made))
            return [
                claimed.policy(name)
                for name in ("completion", "tool call", "KV routing", "KV transfer", "other")
            ]

    made = plan("h200-disagg", require_fast_lane=True)
    assert asyncio.run(run()) == ["require", "require", "require", "warn", "skip"]
    assert made.claims.policy["fast lane"] == "require"


@pytest.mark.parametrize(
    ("target", "sets", "harmony"),
    [
        ("h200-agg", (), True),
        ("h200-agg", ("engine.args.load-format=dummy",), False),
        ("h200-agg", ("parsers.tool_call=null",), False),
        ("sim", (), False),
    ],
)
def test_who_speaks_harmony(target: str, sets: tuple[str, ...], harmony: bool) -> None:
    made = plan(target, *sets)
    assert made.claims.harmony is harmony
    assert made.claims.policy["tool call"] == ("require" if harmony else "skip")
