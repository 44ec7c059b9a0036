"""A worker that dies for good ends the run: exit 4, its last lines shown, nothing left."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.runs import Run

pytestmark = pytest.mark.e2e


def test_a_worker_that_dies_ends_a_run_without_budget(state: Path) -> None:
    with Run("sim", "--restart-budget", "0", state=state) as run:
        run.ready()
        children = run.descendants()
        os.kill(run.process_state("decode-1")["pid"], signal.SIGKILL)
        assert run.wait(60) == 4
        assert "decode-1 failed" in run.log
        assert "SIGKILL" in run.log
        assert "its last" in run.log
        assert psutil.wait_procs(children, timeout=10)[1] == []


def test_a_worker_that_cannot_start_ends_the_run_with_its_own_words(state: Path) -> None:
    with Run("sim", "--set", "simulation.args.planner-profile-data=/nowhere", state=state) as run:
        assert run.wait(90) == 4
        assert "/nowhere" in run.log.rpartition("its last")[2]
        (last,) = [line for line in run.lines if "stopped after" in line]
        assert "first error of " in last
        assert "/nowhere" in last
        assert run.admin_port
        assert not list(state.glob("sim-*"))


def test_a_flag_that_the_release_does_not_know_starts_nothing(state: Path) -> None:
    with Run("sim", "--set", "simulation.args.no-such-flag=1", state=state) as run:
        assert run.wait(30) == 2
        assert "no-such-flag" in run.log
        assert not run.admin_port


def test_not_ready_in_time_is_a_failure_that_says_what_is_missing(state: Path) -> None:
    options = [
        "--set",
        "simulation.args.startup-time=60",
        "--set",
        "deadlines.start_s=6",
        "--log-format",
        "json",
    ]
    with Run("sim", *options, state=state) as run:
        assert run.wait(60) == 4
        told = [json.loads(line)["message"] for line in run.lines if '"error"' in line]
        assert any("not ready 6 s after the start" in message for message in told)


def test_the_inits_own_sigkill_leaves_nothing_and_blames_nobody(state: Path) -> None:
    with Run("sim", state=state) as run:
        run.ready()
        children = run.descendants()
        run.process.kill()
        run.wait(10)
        assert psutil.wait_procs(children, timeout=10)[1] == []
        assert "the init process is gone; ending everything" in run.log
        assert "Traceback" not in run.log
        assert not list(state.glob("sim-*"))
        assert not list(state.glob("incidents/*"))
