"""Rules over a plan: what only shows once processes, ports and deadlines are known."""

from __future__ import annotations

from launcher.checks.base import Check, Group
from launcher.checks.plan import spread, timing, wiring
from launcher.findings import Exit

CHECKS: tuple[Check, ...] = (
    Check(timing.grace, ("grace-short",)),
    Check(timing.start, ("start-short",)),
    Check(wiring.ports_distinct, ("port-twice",)),
    Check(wiring.one_cache, ("cache-split",)),
    Check(spread.disaggregated, ("disagg-nodes",)),
    Check(spread.planes, ("advertise-loopback", "planes-open")),
    Check(spread.release, ("nodes-release",)),
    Check(wiring.discovery, ("discovery-mixed", "discovery-unknown")),
)

GROUP = Group("plan", CHECKS, Exit.USAGE)
