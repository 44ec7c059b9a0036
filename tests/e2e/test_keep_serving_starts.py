"""Dynamo 1.3.1 forgets entries that it has just made (11 of 48 starts): none is lost where we keep the folder."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.chaos.strike import Side, listed, routed
from tests.plan.test_real_parsers import interpreter
from tests.support.runs import Run

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]
ROUNDS, EACH = 6, 4
LIFE_S = 13.0
"""Longer than an entry lives that nobody touches."""


@pytest.mark.parametrize("release", ["", pytest.param("1.3.1", marks=pytest.mark.compat)])
def test_of_48_starts_no_worker_loses_an_entry(release: str, state: Path) -> None:
    other = ("--python", interpreter(release)) if release else ()
    starts = 0
    for _ in range(ROUNDS):
        counts = ("--set", f"workers.prefill.count={EACH}", "--set", f"workers.decode.count={EACH}")
        with Run("sim", *counts, *other, state=state) as run:
            run.ready(180)
            side = Side(run.url, run.model, lambda name: 0, lambda name: 0)
            time.sleep(LIFE_S)
            assert routed(side) == {"prefill": EACH, "decode": EACH}
            assert len(listed(side)) == 2 * EACH
            folder = next(run.state.glob("sim-*")) / "discovery" / "v1"
            assert (
                len([path for path in (folder / "instances").iterdir() if "generate" in path.name])
                == 2 * EACH
            )
            assert len(list((folder / "mdc").iterdir())) == 2 * EACH
            assert run.status()["restarts"] == 0
            assert run.chat()["usage"]["completion_tokens"] == 16
            starts += 2 * EACH
            assert run.stop() == 0
    assert starts == 48
