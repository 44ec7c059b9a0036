"""The drain schedule fits the grace period, stage by stage."""

from __future__ import annotations

import pytest

from launcher.plan import deadlines
from launcher.plan.model import Role, Stop
from launcher.target.schema import Deadlines
from tests.support.plans import TARGETS, plan


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_fits_its_grace_period(target: str) -> None:
    found = plan(target).deadlines
    assert found.total_s <= found.grace_s - 1
    assert found.drain_s["frontend"] >= deadlines.FRONTEND_LEAST_S


@pytest.mark.parametrize("target", TARGETS)
def test_a_stage_holds_what_its_processes_may_take(target: str) -> None:
    found = plan(target)
    for process in found.processes:
        if process.role is not Role.HELPER:
            assert process.stop.total_s <= found.deadlines.drain_s[process.role.value]


def test_stages_go_from_the_frontend_inwards() -> None:
    found = plan("h200-disagg")
    stages = {process.role: process.stop_stage for process in found.processes}
    assert stages[Role.FRONTEND] < stages[Role.DECODE] < stages[Role.PREFILL] < stages[Role.HELPER]


def test_the_frontend_gets_what_is_left() -> None:
    stops = {Role.DECODE: Stop(9), Role.PREFILL: Stop(9)}
    found = deadlines.schedule(Deadlines(pause_s=5, grace_s=120), stops)
    assert found.drain_s == {"frontend": 92.0, "decode": 10.0, "prefill": 10.0}


def test_too_little_grace_is_told() -> None:
    stops = {Role.AGGREGATED: Stop(60)}
    wanted = Deadlines(pause_s=5, grace_s=30)
    assert deadlines.needed_grace_s(wanted, stops) == 74.0
    assert deadlines.schedule(wanted, stops).drain_s["frontend"] == deadlines.FRONTEND_LEAST_S
