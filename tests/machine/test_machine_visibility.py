"""CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES, by CUDA's rules."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.machine import Machine
from launcher.machine.visibility import visible

GPUS = tuple(
    dataclasses.replace(gpu, uuid=uuid)
    for gpu, uuid in zip(
        Machine.like("H200", gpus=4).gpus, ("GPU-aa11", "GPU-aa22", "GPU-bb33", "GPU-cc44"), strict=True
    )
)
SLICES = tuple(dataclasses.replace(GPUS[0], uuid=uuid, mig=True) for uuid in ("MIG-1", "MIG-2"))


def names(**environ: str) -> tuple[list[str], tuple[str, ...]]:
    found = visible(GPUS, SLICES, environ)
    return [gpu.cuda_name for gpu in found.gpus], found.problems


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,1,2,3", ["0", "1", "2", "3"]),
        ("2", ["2"]),
        ("3, 1", ["3", "1"]),
        ("GPU-bb33", ["2"]),
        ("GPU-bb,GPU-cc44", ["2", "3"]),
        ("MIG-2", ["MIG-2"]),
        ("1gpu,2", ["1", "2"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,-1,1", ["0"]),
    ],
)
def test_cuda_values_without_a_problem(value: str, expected: list[str]) -> None:
    assert names(CUDA_VISIBLE_DEVICES=value) == (expected, ())


@pytest.mark.parametrize(
    ("value", "expected", "says"),
    [
        ("0,9,1", ["0"], "'9' names no GPU here; CUDA hides it and all after it (1)"),
        ("9", [], "'9' names no GPU here"),
        ("0,0", [], "named twice"),
        ("0,GPU-bb33", ["0"], "'GPU-bb33' names no GPU"),
        ("GPU-bb33,0", ["2"], "'0' names no GPU"),
        ("GPU-aa", [], "'GPU-aa' names no GPU"),
        ("GPU-bb33,GPU-bb", [], "named twice"),
        ("0,,1", ["0"], "'' names no GPU"),
        ("all", [], "'all' names no GPU"),
        ("²", [], "names no GPU"),
    ],
)
def test_cuda_values_with_a_problem(value: str, expected: list[str], says: str) -> None:
    found, problems = names(CUDA_VISIBLE_DEVICES=value)
    assert found == expected
    assert len(problems) == 1
    assert says in problems[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("all", ["0", "1", "2", "3"]),
        ("void", ["0", "1", "2", "3"]),
        ("", ["0", "1", "2", "3"]),
        ("none", []),
        ("GPU-cc44,GPU-aa11", ["3", "0"]),
        ("MIG-1", ["MIG-1"]),
        ("2,3", ["2", "3"]),
        # The runtime has taken 4 of 8 and numbered them anew: the indices are the host's.
        ("4,5,6,7", ["0", "1", "2", "3"]),
        ("0,1,2,3", ["0", "1", "2", "3"]),
    ],
)
def test_container_values(value: str, expected: list[str]) -> None:
    assert names(NVIDIA_VISIBLE_DEVICES=value) == (expected, ())


def test_a_uuid_that_the_container_does_not_have() -> None:
    found, problems = names(NVIDIA_VISIBLE_DEVICES="GPU-cc44,GPU-dd")
    assert found == ["3"]
    assert "no GPU 'GPU-dd' here" in problems[0]


def test_both() -> None:
    environ = {"NVIDIA_VISIBLE_DEVICES": "GPU-aa11,GPU-bb33", "CUDA_VISIBLE_DEVICES": "2,1"}
    assert names(**environ) == (["2"], ())
    assert visible(GPUS, SLICES, environ).by == "CUDA_VISIBLE_DEVICES=2,1"


def test_neither() -> None:
    assert visible(GPUS, SLICES, {}).gpus == GPUS
    assert visible(GPUS, SLICES, {}).by == ""


ENTRY = st.sampled_from(["0", "3", "9", "-1", "", "GPU-aa11", "GPU-aa", "MIG-1", "x", "9" * 5000]) | st.text(
    max_size=8
)


@given(st.lists(ENTRY, max_size=6).map(",".join), st.none() | st.lists(ENTRY, max_size=6).map(",".join))
def test_no_value_is_too_strange(cuda: str, container: str | None) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": cuda}
    if container is not None:
        environ["NVIDIA_VISIBLE_DEVICES"] = container
    found = visible(GPUS, SLICES, environ)
    assert len(set(found.gpus)) == len(found.gpus)
    assert set(found.gpus) <= {*GPUS, *SLICES}
