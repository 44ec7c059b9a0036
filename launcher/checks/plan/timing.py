"""Deadlines: the drain against the grace period, the start against how long loading takes."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.deadlines import KILL_MARGIN_S
from launcher.plan.model import Plan
from launcher.target.resolve import Resolved

LOAD_S = 240
"""From start to ready with warm files: 198 s measured for the 120b's full shape on an H200 (vLLM 0.23.0)."""


def grace(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The whole drain must fit between SIGTERM and the kubelet's SIGKILL.

    Pause, then frontend, decode or aggregated, prefill, each with its longest time, then killing what is left. A
    shorter grace period cuts streams that would have finished, and leaves GPU memory to a node that believes it free.
    """
    deadlines = plan.deadlines
    needed = deadlines.total_s + KILL_MARGIN_S
    if needed > deadlines.grace_s:
        stages = ", ".join(f"{role} {seconds:g}" for role, seconds in deadlines.drain_s.items())
        yield Finding(
            code="grace-short",
            what=f"deadlines.grace_s is {deadlines.grace_s:g} s, the drain takes up to {needed:g} s "
            f"(pause {deadlines.pause_s:g}, {stages}, {KILL_MARGIN_S:g} to kill)",
            where=resolved.origin("deadlines", "grace_s"),
            why="the kubelet would kill in the middle of it: streams are cut",
            fix=f"--set deadlines.grace_s={needed:.0f} (and terminationGracePeriodSeconds), or a shorter pause_s",
            link="dynamo#13559",
        )


def start(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Loading takes minutes: 198 s for the 120b on an H200 with warm files, 15 to 30 minutes from slow storage."""
    if not plan.simulated and plan.deadlines.start_s < LOAD_S:
        yield Finding(
            code="start-short",
            what=f"deadlines.start_s is {plan.deadlines.start_s:g} s",
            severity=Severity.WARNING,
            where=resolved.origin("deadlines", "start_s"),
            why=f"the 120b needs some {LOAD_S} s at best; the run would be given up while it loads",
            fix="--set deadlines.start_s=2700",
            link="dynamo#12151",
        )
