"""What a proof's policy means for readiness, before and after the first time ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from launcher.plan.model import Role
from launcher.prove import prover as prover_module
from launcher.prove.claimed import Claimed
from launcher.prove.proof import Proof, failed, passed, skipped
from launcher.prove.prover import Prover
from launcher.supervise.events import ProcessState, State

BAD = failed("KV routing", "prefill-1 publishes no KV events", "kv.events: true")


def process(name: str, role: Role, incarnation: int = 0, *, healthy: bool = True) -> ProcessState:
    return ProcessState(
        name, role, 1, State.READY, "", {}, 0, {}, 0.0, 1.0, None, healthy=healthy, incarnation=incarnation
    )


class Claims(Claimed):
    """Proofs as the test wants them."""

    def __init__(self, **policy: str) -> None:
        self.levels = {
            "completion": "require",
            **{name.replace("_", " "): level for name, level in policy.items()},
        }
        self.proofs: dict[str, Proof] = {
            "completion": passed("completion", "ok"),
            "tool call": passed("tool call", "ok"),
            "KV routing": passed("KV routing", "ok"),
            "KV transfer": skipped("KV transfer", "aggregated"),
        }
        self.tried: list[str] = []

    def policy(self, *names: str) -> str:
        return self.levels.get(names[0], "skip")

    async def _give(self, name: str) -> Sequence[Proof]:
        self.tried.append(name)
        return (self.proofs[name],)

    async def completion(self) -> Sequence[Proof]:
        return await self._give("completion")

    async def tool_call(self) -> Sequence[Proof]:
        return await self._give("tool call")

    async def kv_routing(self) -> Sequence[Proof]:
        return await self._give("KV routing")

    async def transfer(self) -> Sequence[Proof]:
        return await self._give("KV transfer")


class Bench:
    """A prover with its surroundings."""

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self.states = [process("frontend", Role.FRONTEND), process("aggregated-0", Role.AGGREGATED)]
        self.lines: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self.prover = Prover(claims, lambda: self.states, self.log, fail=self.failures.append)

    def log(self, message: str, level: str = "info") -> None:
        self.lines.append((level, message))

    async def looks(self, count: int = 12, *, was_ready: bool = False) -> list[str]:
        """The reasons after some looks, each with time for a proof to end."""
        reasons: list[str] = []
        for _ in range(count):
            reasons = self.prover.look(was_ready=was_ready)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return reasons


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover_module, "RETRY_S", (0.0,))


def test_all_proven() -> None:
    async def run() -> None:
        bench = Bench(Claims(KV_routing="require"))
        assert bench.prover.look(was_ready=False) == ["proving: completion"]
        assert await bench.looks() == []
        assert bench.claims.tried == ["completion", "tool call", "KV routing", "KV transfer"]
        assert [entry["policy"] for entry in bench.prover.to_json()] == ["require", "skip", "require", "skip"]
        assert bench.lines == []

    asyncio.run(run())


def test_nothing_is_tried_before_a_completion_comes_back() -> None:
    async def run() -> None:
        bench = Bench(Claims(KV_routing="require"))
        bench.claims.proofs["completion"] = failed("completion", "HTTP 500")
        assert await bench.looks() == ["completion not proven: HTTP 500"]
        assert set(bench.claims.tried) == {"completion"}
        assert bench.lines == [("error", "completion not proven: HTTP 500")]

    asyncio.run(run())


def test_a_required_proof_holds_readiness_back_until_it_passes() -> None:
    async def run() -> None:
        bench = Bench(Claims(KV_routing="require"))
        bench.claims.proofs["KV routing"] = BAD
        assert await bench.looks() == [
            "KV routing not proven: prefill-1 publishes no KV events; kv.events: true"
        ]
        bench.claims.proofs["KV routing"] = passed("KV routing", "found")
        assert await bench.looks() == []
        assert bench.lines[-1] == ("info", "KV routing proven now: found")
        assert len([line for line in bench.lines if line[0] == "error"]) == 1

    asyncio.run(run())


def test_a_warning_lets_traffic_in_after_two_tries() -> None:
    async def run() -> None:
        bench = Bench(Claims(KV_routing="warn"))
        bench.claims.proofs["KV routing"] = BAD
        assert await bench.looks() == []
        assert bench.claims.tried.count("KV routing") == 2
        assert [level for level, _ in bench.lines] == ["warning"]

    asyncio.run(run())


def test_what_can_never_pass_ends_the_run() -> None:
    async def run() -> None:
        bench = Bench(Claims(KV_routing="require"))
        bench.claims.proofs["KV routing"] = failed("KV routing", "blocks of 16 tokens", final=True)
        await bench.looks()
        assert bench.failures[0] == "KV routing not proven: blocks of 16 tokens"
        warned = Bench(Claims(KV_routing="warn"))
        warned.claims.proofs["KV routing"] = failed("KV routing", "blocks of 16 tokens", final=True)
        assert await warned.looks() == []
        assert warned.failures == []

    asyncio.run(run())


def test_a_restart_makes_it_due_again_and_a_failure_then_is_a_warning() -> None:
    async def run() -> None:
        bench = Bench(Claims(KV_routing="require"))
        assert await bench.looks() == []
        bench.claims.tried.clear()
        bench.claims.proofs["KV routing"] = BAD
        bench.states[1] = process("aggregated-0", Role.AGGREGATED, 1, healthy=False)
        assert await bench.looks(was_ready=True) == []
        assert bench.claims.tried == []  # not before it is well again
        bench.states[1] = process("aggregated-0", Role.AGGREGATED, 1)
        assert await bench.looks(30, was_ready=True) == []
        assert set(bench.claims.tried) == {"KV routing"}
        assert [level for level, _ in bench.lines] == ["warning"]

    asyncio.run(run())


def test_a_new_frontend_has_to_answer_first() -> None:
    async def run() -> None:
        bench = Bench(Claims())
        assert await bench.looks() == []
        bench.states[0] = process("frontend", Role.FRONTEND, 1)
        bench.claims.proofs["completion"] = failed("completion", "HTTP 404")
        assert await bench.looks(was_ready=True) == ["completion not proven: HTTP 404"]

    asyncio.run(run())


def test_an_answer_that_nobody_foresaw_is_a_failure() -> None:
    async def run() -> None:
        bench = Bench(Claims(tool_call="require"))

        async def odd() -> Sequence[Proof]:
            answer: Any = {}
            return (answer["choices"],)

        bench.prover._trials[1].prove = odd
        assert await bench.looks() == [
            "tool call not proven: an answer of unknown shape: KeyError: 'choices'"
        ]

    asyncio.run(run())


def test_a_drain_tries_nothing_more() -> None:
    async def run() -> None:
        bench = Bench(Claims())
        bench.prover.stop()
        await bench.looks()
        assert bench.claims.tried == []
        await bench.prover.close()

    asyncio.run(run())
