"""Which worker gets which GPUs, and what an inherited CUDA_VISIBLE_DEVICES changes."""

from __future__ import annotations

import dataclasses

import pytest

from launcher.cli import planning
from launcher.machine import Machine
from launcher.plan.model import Role
from tests.support.plans import plan


def with_visible(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr(planning, "machine_for", lambda settings: machine)


def seen(machine: Machine, order: list[int], by: str) -> Machine:
    return dataclasses.replace(
        machine,
        visible=tuple(machine.gpus[index] for index in order),
        visible_by=f"CUDA_VISIBLE_DEVICES={by}",
    )


def test_inherited_indices_are_honoured_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with_visible(monkeypatch, seen(Machine.like("H200", 8), [6, 2, 4, 0], "6,2,4,0"))
    found = plan("h200-disagg", "workers.prefill.count=2", "workers.decode.count=2")
    assert [worker.env["CUDA_VISIBLE_DEVICES"] for worker in found.workers] == [
        "6,2,4,0",
        "2,6,4,0",
        "4,6,2,0",
        "0,6,2,4",
    ]


def test_inherited_uuids_stay_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine.like("H200", 2)
    uuids = [gpu.uuid for gpu in machine.gpus]
    with_visible(monkeypatch, seen(machine, [1, 0], f"{uuids[1]},{uuids[0]}"))
    found = plan("h200-disagg", "workers.prefill.count=1", "workers.decode.count=1")
    assert [worker.env["CUDA_VISIBLE_DEVICES"] for worker in found.workers] == [
        f"{uuids[1]},{uuids[0]}",
        f"{uuids[0]},{uuids[1]}",
    ]


def test_tensor_parallel_workers_get_contiguous_gpus() -> None:
    found = plan("h200-agg", "workers.aggregated.count=2", "workers.aggregated.tensor_parallel=4")
    assert [worker.gpus for worker in found.workers] == [("0", "1", "2", "3"), ("4", "5", "6", "7")]
    assert [worker.env["CUDA_VISIBLE_DEVICES"] for worker in found.workers] == ["0,1,2,3", "4,5,6,7"]


def test_colocated_workers_share_the_gpu() -> None:
    found = plan("h200-1gpu-disagg")
    assert [(worker.role, worker.gpus) for worker in found.workers] == [
        (Role.PREFILL, ("0",)),
        (Role.DECODE, ("0",)),
    ]
    assert {worker.env["CUDA_VISIBLE_DEVICES"] for worker in found.workers} == {"0"}


def test_too_few_gpus_still_show_the_whole_plan() -> None:
    found = plan("h200-disagg", machine="H200:3")
    assert [worker.gpus for worker in found.workers] == [(str(index),) for index in range(8)]


def test_the_simulator_takes_no_gpu() -> None:
    found = plan("h200-disagg", engine="mocker")
    assert {worker.gpus for worker in found.workers} == {()}
    assert not any("CUDA_VISIBLE_DEVICES" in worker.env for worker in found.workers)
