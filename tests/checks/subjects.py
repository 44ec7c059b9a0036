"""What the checks look at, made for tests: plans for machines that are not here, with given releases installed."""

from __future__ import annotations

import dataclasses
from typing import Any

from launcher.checks.versions import renames
from launcher.findings import Finding
from launcher.kubernetes.subject import PaperPorts
from launcher.machine import Machine
from launcher.machine.simulated import Scripted
from launcher.plan.build import Planner, Request
from launcher.plan.model import Plan
from launcher.target import overrides
from launcher.target.resolve import Resolved, resolve
from tests.support.plans import MACHINES

RELEASES = {"1.3.1": "0.23.0", "1.4.2": "0.26.0", "1.6.1": "0.31.0"}
"""Dynamo to the vLLM that it pins."""
PYTHON = "/usr/bin/python3"


def resolved(target: str, *sets: str) -> Resolved:
    """A target with changes, as `--set` takes them."""
    return resolve(target, [overrides.parse(text, "--set") for text in sets])


def machine_for(target: str, dynamo: str | None = None, **changes: Any) -> Machine:
    """The node that a target is for, as if it were here, with a release of Dynamo and what goes with it."""
    product, _, count = MACHINES[target].partition(":")
    packages = {}
    if dynamo is not None:
        packages = {"ai-dynamo": dynamo, "vllm": RELEASES.get(dynamo, "0.31.0"), "nixl": "1.1.0"}
    given = {"simulated": False, "probe": Scripted(), "packages": packages}
    return dataclasses.replace(Machine.like(product, int(count)), **{**given, **changes})


def plan_of(
    subject: Resolved, machine: Machine, inherited: dict[str, str] | None = None
) -> tuple[Plan, list[Finding]]:
    """The plan, and what was said about flags that the releases call by another name."""
    target, renamed = renames.adapt(subject, machine.packages)
    request = Request(
        run_dir="/run/launcher/r1",
        cache_dir="/cache",
        python=PYTHON,
        dynamo=(1, 6, 1),
        native=target.engine.kind,
        json_logs=False,
        http_port=target.network.http_port or 8000,
        admin_port=target.network.admin_port or 9000,
        inherited=inherited or {},
    )
    return Planner(target, machine, request, PaperPorts(20000)).plan(), renamed


def codes(findings: list[Finding]) -> set[str]:
    """The codes, after making sure that no check failed itself."""
    found = {finding.code for finding in findings}
    assert "check-failed" not in found, [
        finding.what for finding in findings if finding.code == "check-failed"
    ]
    return found
