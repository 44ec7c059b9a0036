"""Less than all of it serves: what readiness says meanwhile, and the end where the budget of restarts is spent."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.chaos.load import Load, bad, short
from tests.e2e.test_keep_serving import until
from tests.support.runs import Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def kill(run: Run, name: str) -> None:
    os.kill(run.process_state(name)["pid"], signal.SIGKILL)


def test_a_spent_budget_drains_writes_the_incident_and_ends_with_4(state: Path) -> None:
    with Run("sim", "--restart-budget", "1", "--set", "deadlines.grace_s=60", state=state) as run:
        run.ready()
        everything = run.descendants()
        kill(run, "decode-1")
        until(lambda: run.process_state("decode-1")["restarts"] == 1, "restarted once")
        until(lambda: run.status()["ready"] and not run.status()["degraded"], "whole again")
        everything += run.descendants()
        with Load(run.url, run.model, streams=8, tokens=400) as load:
            time.sleep(1.5)
            kill(run, "decode-1")
            died = time.monotonic()
            code = run.wait(60)
            requests = load.finish()
        assert code == 4
        # What was under way when the last worker of the budget died ended whole: a drain, not a kill.
        flying = [each for each in requests if each.began < died < each.ended]
        assert len(flying) >= 4
        assert [(each.outcome, each.detail) for each in bad(flying)] == []
        assert short(flying, 400) == 0
        assert "the restart budget is spent" in run.log
        found = [
            json.loads(path.read_text()) for path in sorted((state / "incidents").glob("*decode-1*.json"))
        ]
        assert len(found) == 2
        assert found[-1]["process"] == "decode-1"
        assert found[-1]["exit"]["signal"] == 9
        assert psutil.wait_procs(everything, timeout=10)[1] == []


def test_min_ready_says_how_few_workers_are_enough(state: Path) -> None:
    # A start that takes a while, so that there is time to look.
    slow = ("--set", "simulation.args.startup-time=4", "--set", "workers.decode.min_ready=1")
    with Run("sim", *slow, "--restart-budget", "9", state=state) as run:
        run.ready()
        kill(run, "decode-0")
        until(lambda: run.status()["degraded"], "degraded", 5)
        assert run.admin("/readyz")[0] == 200
        page = run.status()
        assert page["capacity"]["decode"] == {"planned": 2, "ready": 1, "min_ready": 1}
        assert 'launcher_workers_ready{role="decode"} 1' in run.admin("/metrics")[1]
        assert run.chat()["usage"]["completion_tokens"] == 16
        # A second one leaves none, and a role that has to have both is short of one.
        kill(run, "prefill-0")
        until(lambda: run.admin("/readyz")[0] == 503, "not ready", 5)
        assert "prefill-0" in run.admin("/readyz")[1]
        until(lambda: run.status()["ready"] and not run.status()["degraded"], "whole again")
        assert run.stop() == 0
