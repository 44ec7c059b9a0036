"""Plans for tests, made as the command line makes them."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from launcher.cli import common, planning
from launcher.plan.model import Plan, Process
from launcher.target import catalog

TARGETS = catalog.names()
MACHINES = {
    "b200-agg": "B200:8",
    "b200-disagg": "B200:8",
    "h200-agg": "H200:8",
    "h200-disagg": "H200:8",
    "h200-1gpu-agg": "H200:1",
    "h200-1gpu-disagg": "H200:1",
    "gb200-trtllm-agg": "GB200:4",
    "gb200-trtllm-disagg": "B200:8",
    "sim": "H200:0",
}
"""The machine that each target is for."""


@contextlib.contextmanager
def planned(
    target: str, *sets: str, machine: str | None = None, **options: Any
) -> Iterator[planning.Planned]:
    """What `launcher plan --target TARGET --set ...` holds while it runs."""
    values = {"target": target, "set": list(sets), "machine": machine or MACHINES[target], **options}
    with planning.planned(common.load(argparse.Namespace(**values)), run_name=f"{target}.run") as result:
        yield result


def plan(target: str, *sets: str, machine: str | None = None, **options: Any) -> Plan:
    """The plan of a target on the machine that it is for."""
    with planned(target, *sets, machine=machine, **options) as result:
        return result.plan


def flags(process: Process) -> dict[str, str]:
    """A process's flags and their values; a flag without one gives the empty string."""
    found: dict[str, str] = {}
    last = ""
    for word in process.argv[3:]:
        if word.startswith("--"):
            last = word
            found[last] = ""
        else:
            assert last, f"{word!r} stands before any flag"
            assert not found[last], f"{last} has two values"
            found[last] = word
    return found


def clear_environment(monkeypatch: pytest.MonkeyPatch, names: Sequence[str] = (), **extra: str) -> None:
    """Make the environment say nothing to a plan but what `extra` says."""
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HF_HOME", "DYN_LOG", *names):
        monkeypatch.delenv(name, raising=False)
    for name, value in extra.items():
        monkeypatch.setenv(name, value)


def subset(expected: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `found` that `expected` names: equal to it where all hold, and readable where one does not."""
    return {name: found.get(name) for name in expected}
