"""Workers that run, answer their health page and do no work: found by their counters and a canary. Real processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.load import Load, bad
from tests.chaos.strike import Side, routed
from tests.plan.test_real_parsers import interpreter
from tests.support.runs import ROOT, Run

VOCABULARY = os.environ.get("TIKTOKEN_ENCODINGS_BASE", str(ROOT.parent / "shared" / "harmony"))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (Path(VOCABULARY) / "o200k_base.tiktoken").is_file(), reason="needs the o200k vocabulary"
    ),
]
INSIDE = f"simulation.env.PYTHONPATH={ROOT / 'tests/chaos/inside'}:{ROOT}"
INTERVAL_S, TIMEOUT_S = 1.0, 4.0
CANARY = (
    "--set", f"canary.interval_s={INTERVAL_S}", "--set", f"canary.timeout_s={TIMEOUT_S}",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """2P2D of echo workers: real Dynamo processes whose request handler is Python."""
    options = ("--engine", "echo", "--restart-budget", "100", "--set", INSIDE, *CANARY)
    with Run("sim", *options, state=tmp_path_factory.mktemp("s"), TIKTOKEN_ENCODINGS_BASE=VOCABULARY) as run:
        yield run.ready()


def break_and_wait(run: Run, name: str, number: signal.Signals, words: str, within_s: float) -> None:
    """Break a worker; it is taken for dead for the reason, alone, and comes back."""
    time.sleep(7 * INTERVAL_S)  # errors count only where all was well for a while
    before = {state["name"]: state["pid"] for state in run.status()["processes"]}
    said = len(run.lines)
    began = time.monotonic()
    os.kill(before[name], number)
    while not any(name in line and words in line for line in run.lines[said:]):
        assert time.monotonic() - began < within_s, run.lines[said:]
        time.sleep(0.05)
    until = time.monotonic() + 60
    while not run.status()["ready"] or run.status()["degraded"]:
        assert time.monotonic() < until, run.status()["reasons"]
        time.sleep(0.1)
    after = {state["name"]: state["pid"] for state in run.status()["processes"]}
    assert {each for each in after if after[each] != before[each]} == {name}


@pytest.mark.parametrize("name", ["decode-0", "prefill-1"])
def test_a_stuck_event_loop_is_found_while_nobody_asks(run: Run, name: str) -> None:
    # Its health page is answered by another thread.
    break_and_wait(run, name, signal.SIGUSR2, "no progress in", 2 * TIMEOUT_S + 4 * INTERVAL_S)


def test_a_stuck_event_loop_is_found_under_load_and_its_streams_move(run: Run) -> None:
    with Load(run.url, run.model, streams=8, tokens=64, stall_s=60) as load:
        break_and_wait(run, "decode-1", signal.SIGUSR2, "no progress in", 2 * TIMEOUT_S + 4 * INTERVAL_S)
        requests = load.finish()
    assert len(requests) > 8
    assert [(each.outcome, each.detail) for each in bad(requests)] == []


@pytest.mark.compat
@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
def test_other_releases_find_a_stuck_worker(release: str, state: Path) -> None:
    options = ("--engine", "echo", "--restart-budget", "9", "--set", INSIDE, *CANARY)
    python = ("--python", interpreter(release))
    with Run("sim", *options, *python, state=state, TIKTOKEN_ENCODINGS_BASE=VOCABULARY) as run:
        run.ready(180)
        break_and_wait(run, "decode-0", signal.SIGUSR2, "no progress in", 2 * TIMEOUT_S + 4 * INTERVAL_S)


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_an_engine_that_fails_every_request_is_found(run: Run, name: str) -> None:
    break_and_wait(run, name, signal.SIGUSR1, "small requests in a row failed", 20 * INTERVAL_S)


def test_full_load_raises_no_alarm(run: Run) -> None:
    """More streams than the workers and two CPUs can take, for many times the canary's deadline."""
    side = Side(run.url, run.model, lambda name: 0, lambda name: 0)
    whole, restarts = routed(side), run.status()["restarts"]
    with Load(run.url, run.model, streams=128, tokens=64, words=200) as load:
        time.sleep(8 * TIMEOUT_S)
        requests = load.finish()
    assert [(each.outcome, each.detail) for each in bad(requests)] == []
    assert routed(side) == whole
    assert run.status()["restarts"] == restarts
