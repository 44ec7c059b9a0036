"""What supervision is told of an engine that lives on in part: the descendants it must have, the lines of its end."""

from __future__ import annotations

import re

import pytest

from tests.support.plans import TARGETS, plan

DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)"
"""As vLLM 0.23.0 said it on an H200 after SIGKILL of its engine process."""


@pytest.mark.parametrize("title", ["VLLM::EngineCore", "VLLM::EngineCore_DP0"])
def test_a_vllm_worker_must_have_its_engine_process(title: str) -> None:
    for worker in plan("h200-disagg").workers:
        assert worker.ranks is not None
        assert worker.ranks.count == 1
        assert re.search(worker.ranks.pattern, title)
        # Its parent's command line and its ranks' titles must not stand in for it.
        for other in (" ".join(worker.argv), "VLLM::Worker_TP0", "grep VLLM::EngineCore"):
            assert not re.search(worker.ranks.pattern, other)


def test_a_dead_engine_says_so_in_the_log() -> None:
    for worker in plan("h200-disagg").workers:
        assert any(re.search(pattern, DEAD) for pattern in worker.fatal)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_asks_its_workers_unless_told_otherwise(target: str) -> None:
    found = plan(target).canary
    assert found is not None
    # Longer than a kernel takes to compile on its first use, and many looks.
    assert found.timeout_s >= 30
    assert found.interval_s * 3 <= found.timeout_s
    assert plan(target, "canary.enabled=false").canary is None
