"""Every target runs with the simulator: same processes, roles and ports as with its own engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.plan.model import Role
from launcher.target import catalog
from tests.support.plans import plan
from tests.support.runs import Run

pytestmark = pytest.mark.e2e
QUICK = ("h200-1gpu-agg", "h200-1gpu-disagg", "gb200-trtllm-agg", "gb200-trtllm-disagg")


@pytest.mark.parametrize("target", [name for name in catalog.names() if name != "sim"])
def test_the_simulator_has_the_same_processes_and_roles(target: str) -> None:
    own, simulated = plan(target), plan(target, engine="mocker")
    assert [(process.name, process.role) for process in own.processes] == [
        (process.name, process.role) for process in simulated.processes
    ]
    for a, b in zip(own.processes, simulated.processes, strict=True):
        assert set(b.ports) <= set(a.ports)
    assert simulated.simulated
    assert any("imulated" in note for note in simulated.notes)


def serve_and_ask(target: str, state: Path, *options: str) -> None:
    with Run(target, "--engine", "mocker", *options, state=state) as run:
        run.ready()
        status = run.status()
        expected = [(process.name, process.role.value) for process in plan(target).processes]
        assert [(process["name"], process["role"]) for process in status["processes"]] == expected
        assert all(process["state"] == "ready" for process in status["processes"])
        assert status["simulated"] is True
        assert "simulated" in run.log
        assert run.chat("Hello")["usage"]["completion_tokens"] == 16
        chunks = list(run.stream("Hello"))
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
        assert run.stop() == 0


@pytest.mark.parametrize("target", QUICK)
def test_a_small_target_serves(target: str, state: Path) -> None:
    serve_and_ask(target, state)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("target", [name for name in catalog.names() if name not in QUICK])
def test_a_large_target_serves(target: str, state: Path) -> None:
    serve_and_ask(target, state)


def test_a_served_name_of_ones_own(state: Path) -> None:
    with Run("h200-1gpu-agg", "--engine", "mocker", "--set", "model.served_name=my/name", state=state) as run:
        run.ready()
        assert run.chat("Hello", model="my/name")["model"] == "my/name"


def test_the_helper_is_no_worker() -> None:
    assert Role.HELPER not in {worker.role for worker in plan("sim").workers}
