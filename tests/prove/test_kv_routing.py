"""The KV-routing self-test passes where routing works, and says what is wrong where it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from launcher.discovery.cards import Card
from launcher.prove import kv_routing
from launcher.prove.kv_routing import KvRouting
from launcher.prove.proof import Outcome, Proof
from tests.prove.fake import BLOCK, Fake, Worker, serving


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_routing, "SETTLE_S", (0.0, 0.0))


def aggregated(**faults: Any) -> Fake:
    return Fake([Worker(11, "backend", 1), Worker(12, "backend", 2)], **faults)


def prove(fake: Fake, **options: Any) -> Proof:
    async def run() -> Proof:
        async with serving(fake) as frontend:
            test = KvRouting(
                frontend,
                {11: "aggregated-0", 12: "aggregated-1"},
                **{"disaggregated": False, "block_size": BLOCK, **options},
            )
            return await test.run()

    return asyncio.run(run())


def test_repeats_and_siblings_find_their_prefix() -> None:
    fake = aggregated()
    proof = prove(fake)
    assert proof.outcome is Outcome.PASSED, proof
    found = proof.figures["workers"]["aggregated-1"]
    assert found["hit"] == 1.0
    assert 0.65 < found["sibling_hit"] < 0.85
    assert proof.figures["events_applied"] == 4
    assert proof.figures["block_size_tokens"] == BLOCK
    # Each worker: one prompt by its id, its repeat, a sibling; nothing else.
    assert len(fake.seen) == 6
    assert len({body["prompt"] for body in fake.seen}) == 4


def test_a_worker_without_events_is_named() -> None:
    fake = aggregated()
    fake.workers[1].publishes = False
    proof = prove(fake)
    assert proof.outcome is Outcome.FAILED
    assert proof.text == "no KV events reach the router from aggregated-1"
    assert "kv.events" in proof.fix
    # A broker that is being replaced looks the same from the API.
    assert "`launcher status` tells whether the events process is well" in proof.fix
    assert proof.figures["workers"]["aggregated-0"]["hit"] == 1.0


def test_a_worker_that_was_told_not_to_publish_is_told_apart() -> None:
    fake = aggregated()
    fake.workers[0].publishes = fake.workers[1].publishes = False
    told = {11: Card(BLOCK, 100, False), 12: Card(BLOCK, 100, True)}
    assert prove(fake, registered=told).text == (
        "KV events are switched off at aggregated-0; no KV events reach the router from aggregated-1"
    )


def test_a_router_that_chooses_otherwise() -> None:
    proof = prove(aggregated(misroutes=True))
    assert proof.text == ("the router knows the prefix on aggregated-1, yet the repeat went to aggregated-0")


def test_a_worker_that_the_router_left_out() -> None:
    fake = aggregated()
    fake.workers[1].answers = False
    assert prove(fake).text.startswith("no answer from aggregated-1 when asked by id (HTTP 400")


def test_block_sizes_that_differ() -> None:
    proof = prove(aggregated(block_in_force=64))
    assert proof.text == "the frontend routes in blocks of 64 tokens, the plan says 16"
    assert proof.final
    proof = prove(aggregated(), registered={12: Card(64, 100, True)})
    assert proof.text == "aggregated-1 has KV blocks of 64 tokens, the plan says 16"


def test_predictions_are_no_events() -> None:
    proof = prove(aggregated(predicts=True))
    assert proof.outcome is Outcome.FAILED
    assert "the router predicts" in proof.text


def test_a_frontend_that_reports_nothing_proves_nothing() -> None:
    assert "reports no hit rate" in prove(aggregated(reports_hits=False)).text


def test_a_context_that_is_too_short() -> None:
    assert prove(aggregated(), longest=200).outcome is Outcome.SKIPPED


def test_disaggregated_workers_are_asked_by_their_prefill_id() -> None:
    fake = Fake([Worker(11, "prefill", 1), Worker(12, "prefill", 2), Worker(13, "backend", 3)])
    assert prove(fake, disaggregated=True).outcome is Outcome.PASSED
    assert fake.seen[0]["nvext"]["prefill_worker_id"] == 11


def test_nobody_there() -> None:
    async def run() -> Proof:
        fake = aggregated()
        async with serving(fake) as frontend:
            frontend.url = "http://127.0.0.1:9"
            return await KvRouting(frontend, {11: "a"}, disaggregated=False).run()

    assert asyncio.run(run()).text == "the frontend has no /metrics"
