"""A user without a home that can be written: Dynamo's frontend keeps model cards there, and lists no model without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.cli import planning
from tests.support import plans
from tests.support.runs import Run


@pytest.mark.e2e
def test_it_serves_without_a_home(state: Path) -> None:
    with Run("sim", state=state, HOME="/dev/null") as run:
        run.ready()
        assert run.chat("Hello")["usage"]["completion_tokens"] == 16
        assert run.stop() == 0


def test_what_counts_as_no_home(tmp_path: Path) -> None:
    assert planning.lost_home({"HOME": str(tmp_path)}) is None
    assert planning.lost_home({"HOME": "/dev/null"}) == "/dev/null"
    assert planning.lost_home({"HOME": str(tmp_path / "absent")}) == str(tmp_path / "absent")


def test_only_then_the_run_is_the_home_and_the_models_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    plans.clear_environment(monkeypatch, ["XDG_CACHE_HOME"], HOME="/dev/null")
    plan = plans.plan("h200-disagg")
    for process in plan.processes:
        if process.role.value != "helper":
            assert process.env["HOME"] == plan.run_dir
            assert process.env["HF_HOME"] == "/dev/null/.cache/huggingface"
    monkeypatch.setenv("HF_HOME", "/models")
    assert all("HF_HOME" not in process.env for process in plans.plan("h200-disagg").processes)
    monkeypatch.setenv("HOME", os.getcwd())
    assert all("HOME" not in process.env for process in plans.plan("h200-disagg").processes)
