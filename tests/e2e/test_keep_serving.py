"""Workers die, hang and are restarted under load, and no client notices. Real frontend, router, simulated workers."""

from __future__ import annotations

import os
import re
import signal
import stat
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.chaos.load import Load, Request, bad, short
from tests.chaos.strike import Side, routed, strike
from tests.plan.test_real_parsers import interpreter
from tests.support.runs import ROOT, Run, chat_body, post

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
STREAMS = 24
BUDGET = ("--restart-budget", "100")
INSIDE = ("--set", f"simulation.env.PYTHONPATH={ROOT / 'tests/chaos/inside'}:{ROOT}")
"""Lets a worker end with exit code 0 on SIGUSR1."""
REFUSED = re.compile(r"Cannot recreate stream|already exists \(assigned to worker|Instance \S+ not found")
"""Dynamo 1.3.1 and 1.4.2 now and then refuse to book a request anew whose worker has died: 0 to 2 of some 500 requests
on a machine that is starved."""
OUT_S: list[float] = []
"""Of each worker lost by a test here: seconds until it was out of routing."""
AGGREGATED = ("--engine", "mocker", "--set", "workers.aggregated.count=3")


def side(run: Run) -> Side:
    return Side(
        run.url,
        run.model,
        lambda name: int(run.process_state(name)["pid"]),
        lambda name: int(run.process_state(name)["ports"]["rpc"]),
    )


def until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> float:
    """Wait for it; returns the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"never: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def disagg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Run("sim", *BUDGET, *INSIDE, state=tmp_path_factory.mktemp("s")) as run:
        yield run.ready()


@pytest.fixture(scope="module")
def aggregated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Run("h200-agg", *AGGREGATED, *BUDGET, *INSIDE, state=tmp_path_factory.mktemp("s")) as run:
        yield run.ready()


def lose(run: Run, name: str, number: signal.Signals, words: int = 60, refusals: int = 0) -> None:
    """Signal a worker under load: nothing fails, it leaves routing at once and comes back on other ports.

    `refusals`: so many requests may be lost because Dynamo refused its own retry, and said so.
    """
    before, said = run.process_state(name), len(run.lines)
    cost = strike(side(run), name, number, streams=STREAMS, words=words)
    refused = sum(1 for line in run.lines[said:] if REFUSED.search(line)) if refusals else 0
    assert cost.failed + cost.cut <= min(refused, refusals), cost.told()
    assert len(cost.requests) > STREAMS
    assert cost.full_s is not None, f"not whole again: {routed(side(run))}"
    # The goal is 0.3 s at the median (below); one look alone takes longer where others have the CPUs.
    assert cost.out_s is not None
    assert cost.out_s < 1.0
    OUT_S.append(cost.out_s)
    after = run.process_state(name)
    assert after["pid"] != before["pid"]
    assert after["restarts"] == before["restarts"] + 1
    # A worker that unregisters and ends by itself is left to it: neither put back into routing nor killed.
    meddling = (f"restored a registration of {name} ", f"{name} hung") if number == signal.SIGTERM else ()
    assert not [line for line in run.lines[said:] if any(words in line for words in meddling)]
    if number in (signal.SIGTERM, signal.SIGUSR1):
        # It was not asked by us: exit code 0 is a death like any other.
        assert after["last_exit"]["code"] == 0
    assert set(after["ports"].values()).isdisjoint(before["ports"].values())
    until(lambda: run.status()["ready"], "ready again")


LOSSES = pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGUSR1], ids=lambda each: each.name
)


@LOSSES
@pytest.mark.parametrize("name", ["decode-0", "prefill-1"])
def test_a_disaggregated_worker_is_lost_without_a_failed_request(
    disagg: Run, name: str, number: signal.Signals
) -> None:
    # Long prompts keep a prefill worker busy at the moment of its death.
    lose(disagg, name, number, words=400 if name.startswith("prefill") else 60)


@LOSSES
def test_an_aggregated_worker_is_lost_without_a_failed_request(
    aggregated: Run, number: signal.Signals
) -> None:
    lose(aggregated, "aggregated-1", number)


def test_routing_stopped_within_three_tenths_of_a_second_at_the_median() -> None:
    if len(OUT_S) < 6:
        pytest.skip("the tests above have not run in this process")
    assert statistics.median(OUT_S) < 0.3, OUT_S


def test_workers_restart_on_request_without_a_failed_request(disagg: Run) -> None:
    before = {state["name"]: state["pid"] for state in disagg.status()["processes"]}
    (socket,) = disagg.state.glob("*/ctl")
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    with Load(disagg.url, disagg.model, streams=16, tokens=64) as load:
        time.sleep(1)
        done = restart("--all", "--state-dir", str(disagg.state))
        requests = load.finish()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(each.outcome, each.detail) for each in bad(requests)] == []
    assert short(requests, 64) == 0
    after = {state["name"]: state["pid"] for state in disagg.status()["processes"]}
    assert {name for name in after if after[name] != before[name]} == {
        "prefill-0",
        "prefill-1",
        "decode-0",
        "decode-1",
    }
    assert done.stdout.count("in service again") == 4


def test_a_restart_that_would_fail_requests_is_refused(disagg: Run) -> None:
    done = restart("frontend", "--url", f"http://127.0.0.1:{disagg.admin_port}")
    assert done.returncode == 3
    assert "--force" in done.stdout
    done = restart("decode-7", "--state-dir", str(disagg.state))
    assert done.returncode == 2
    assert "decode-1" in done.stderr
    assert restart("--state-dir", str(disagg.state)).returncode == 2
    assert restart("decode-0", "--state-dir", str(disagg.state / "none")).returncode == 2


def restart(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launcher", "restart", *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def freeze_all(run: Run, seconds: float) -> None:
    everything = [psutil.Process(run.process.pid), *run.descendants()]
    for process in everything:
        process.suspend()
    time.sleep(seconds)
    for process in everything:
        process.resume()


def test_a_frozen_machine_goes_on_where_it_was(disagg: Run) -> None:
    until(lambda: disagg.status()["ready"] and not disagg.status()["degraded"], "whole")
    whole, restarts = routed(side(disagg)), disagg.status()["restarts"]
    freeze_all(disagg, 20)
    assert until(lambda: routed(side(disagg)) == whole, "whole again", 20) < 2
    # On a quiet machine the first request is answered within half a second (docs/evidence/keep-serving.md). Beside
    # other tests on two CPUs that took 4 s, or it was refused while the frontend made its pipeline anew.
    body = chat_body("Hello")
    until(lambda: post(f"{disagg.url}/v1/chat/completions", body)[0] == 200, "answers again", 15)
    assert disagg.chat()["usage"]["completion_tokens"] == 16
    time.sleep(12)  # Longer than an entry lives.
    assert routed(side(disagg)) == whole
    assert disagg.status()["restarts"] == restarts


def kill_frontend(run: Run, wait_s: float = 6) -> tuple[list[Request], float]:
    """Kill it under load; returns the requests that it did not take with it, and the seconds until one was answered."""
    with Load(run.url, run.model, streams=8, tokens=32) as load:
        time.sleep(1)
        os.kill(run.process_state("frontend")["pid"], signal.SIGKILL)
        at = time.monotonic()
        time.sleep(wait_s)
        requests = load.finish()
    # Each client had one request there, and that is lost with the process. It comes again after 20 ms.
    lost = [each for each in bad(requests) if each.began < at]
    assert len(lost) <= 8
    later = [each for each in requests if each.began >= at]
    assert later
    return later, min(each.ended for each in later) - at


def test_new_requests_wait_for_a_restarted_frontend_instead_of_failing(disagg: Run) -> None:
    whole = routed(side(disagg))
    for restarts in (1, 2):
        requests, _ = kill_frontend(disagg)
        assert [(each.outcome, each.detail) for each in bad(requests)] == []
        until(lambda: routed(side(disagg)) == whole, "whole again")
        until(lambda: disagg.status()["ready"], "ready again")
        assert disagg.process_state("frontend")["restarts"] == restarts


def test_a_warm_spare_takes_over_at_once(state: Path) -> None:
    with Run("sim", "--set", "frontend.spare=true", *BUDGET, state=state) as run:
        run.ready()
        until(lambda: run.process_state("frontend-spare")["healthy"], "the spare is well")
        time.sleep(2)
        requests, outage_s = kill_frontend(run)
        assert [(each.outcome, each.detail) for each in bad(requests)] == []
        assert outage_s < 1
        until(lambda: run.status()["ready"] and run.process_state("frontend")["healthy"], "whole again")
        assert run.stop() == 0


@pytest.mark.compat
@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
@pytest.mark.parametrize("target", ["sim", "h200-agg"])
def test_other_releases_lose_a_worker_and_no_more_than_they_refuse_themselves(
    release: str, target: str, state: Path
) -> None:
    options = () if target == "sim" else AGGREGATED
    with Run(target, *options, *BUDGET, "--python", interpreter(release), state=state) as run:
        run.ready(180)
        lose(run, "decode-0" if target == "sim" else "aggregated-0", signal.SIGKILL, refusals=3)


@pytest.mark.compat
@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
def test_other_releases_survive_a_freeze(release: str, state: Path) -> None:
    with Run("sim", "--python", interpreter(release), state=state) as run:
        run.ready(180)
        whole = routed(side(run))
        freeze_all(run, 20)
        assert until(lambda: routed(side(run)) == whole, "whole again", 20) < 2
        assert run.chat()["usage"]["completion_tokens"] == 16
        assert run.status()["restarts"] == 0


@pytest.mark.compat
@pytest.mark.parametrize("spare", ["true", "false"])
@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
def test_other_releases_serve_on_after_their_frontend_died(release: str, spare: str, state: Path) -> None:
    options = ("--set", f"frontend.spare={spare}", *BUDGET, "--python", interpreter(release))
    with Run("sim", *options, state=state) as run:
        run.ready(180)
        if spare == "true":
            until(lambda: run.process_state("frontend-spare")["healthy"], "the spare is well")
            time.sleep(15)  # until it routes
        requests, outage_s = kill_frontend(run, 4 if spare == "true" else 25)
        print(f"{release}, spare {spare}: first new answer after {outage_s:.2f} s")
        assert [(each.outcome, each.detail) for each in bad(requests)] == []
        # A fresh frontend of these releases routes after 7 to 11 s on an idle machine.
        assert outage_s < (1 if spare == "true" else 20)
