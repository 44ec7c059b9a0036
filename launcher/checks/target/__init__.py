"""Rules over a target alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from launcher.checks.base import Check, run_checks
from launcher.checks.target import topology
from launcher.findings import Finding
from launcher.target.resolve import Resolved

CHECKS: tuple[Check, ...] = (
    Check(topology.engine_known, ("engine-unknown",), ignorable=False),
    Check(topology.topology, ("workers-none",)),
    Check(topology.kv_events, ("kv-events-off",)),
    Check(topology.stated_once, ("flag-owned",)),
    Check(topology.block_size, ("block-size",)),
)


def check(resolved: Resolved, checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    """Every rule's findings."""
    return run_checks(checks, resolved)
