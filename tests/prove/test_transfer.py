"""The transfer proof: which pairs moved KV, how fast, by which lane."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from launcher.prove import transfer
from launcher.prove.proof import Outcome, Proof
from launcher.prove.transfer import Member, Transfer
from tests.prove.fake import Fake, Worker, serving


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "COUNTED_S", 0.0)
    monkeypatch.setattr(transfer, "LOGGED_S", 0.0)


def fake(**faults: Any) -> Fake:
    numbers = {11: "prefill", 12: "prefill", 13: "backend", 14: "backend", 15: "backend"}
    return Fake([Worker(number, component, number) for number, component in numbers.items()], **faults)


def prove(
    fake: Fake, lanes: tuple[str, ...] = ("cuda_ipc",), *, simulated: bool = False
) -> tuple[Proof, Proof]:
    async def run() -> tuple[Proof, Proof]:
        async with serving(fake) as frontend:

            def member(name: str, number: int) -> Member:
                return Member(name, number, f"{fake.url}/worker/{number}")

            test = Transfer(
                frontend,
                [member("prefill-0", 11), member("prefill-1", 12)],
                [member("decode-0", 13), member("decode-1", 14), member("decode-2", 15)],
                lambda name: lanes,
                simulated=simulated,
            )
            return await test.run()

    return asyncio.run(run())


def test_every_pair_moves_kv() -> None:
    moved, lane = prove(fake())
    assert moved.outcome is Outcome.PASSED
    assert moved.text == "6 of 6 pairs moved KV, 12.0 MB at 2 to 2 GB/s"
    pairs = moved.figures["pairs"]
    assert {(pair["prefill"], pair["decode"]) for pair in pairs} == {
        (f"prefill-{p}", f"decode-{d}") for p in range(2) for d in range(3)
    }
    assert pairs[0] == {
        "prefill": "prefill-0", "decode": "decode-0", "bytes": 2000000, "seconds": 0.001, "gb_s": 2.0,
        "estimate_s": 0.0015, "lanes": ["cuda_ipc"],
    }  # fmt: skip
    assert lane.outcome is Outcome.PASSED
    assert lane.text == "KV moves by cuda_ipc"


def test_no_kv_moved() -> None:
    moved, _ = prove(fake(moves=0.0))
    assert moved.outcome is Outcome.FAILED
    assert moved.text == "6 of 6 pairs: prefill-0 -> decode-0 moved no KV: decode computed the prompt itself"


def test_tcp_is_a_slow_lane() -> None:
    _, lane = prove(fake(), ("cuda_ipc", "tcp"))
    assert lane.outcome is Outcome.FAILED
    assert lane.final
    assert lane.text == "decode-0 moves KV by cuda_ipc and tcp (and 2 more)"
    assert "UCX_CUDA_IPC_ENABLE_GET_ZCOPY" in lane.fix


def test_an_unknown_lane_is_not_proven() -> None:
    _, lane = prove(fake(), ())
    assert lane.outcome is Outcome.FAILED
    assert not lane.final
    assert "UCX_PROTO_INFO" in lane.fix


def test_workers_without_counters() -> None:
    moved, _ = prove(fake(counters=False))
    assert moved.outcome is Outcome.SKIPPED
    assert moved.text == "6 pairs answered; 6 have no NIXL figures on decode's /metrics"


def test_what_is_simulated_says_so() -> None:
    moved, lane = prove(fake(), simulated=True)
    assert moved.text == ("simulated: 6 of 6 pairs answered, no KV moved; the frontend estimates 1.5 ms each")
    assert moved.figures["simulated"] is True
    assert "gb_s" not in moved.figures["pairs"][0]
    assert (lane.outcome, lane.text) == (Outcome.SKIPPED, "simulated: there is no lane")


def test_a_pair_that_gives_no_answer() -> None:
    broken = fake()
    broken.workers[1].answers = False
    moved, _ = prove(broken)
    assert moved.text.startswith("3 of 6 pairs: prefill-1 -> decode-0 gave no answer (HTTP 400")
