"""The drain schedule: nested deadlines that fit the time between SIGTERM and SIGKILL."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.plan.model import Deadlines, Role, Stop
from launcher.target import schema

KILL_MARGIN_S = 3.0
"""Seconds kept for killing and reaping what did not end by itself."""
FRONTEND_LEAST_S = 5.0
"""Seconds below which streams in flight have no fair chance to end."""


def schedule(wanted: schema.Deadlines, stops: Mapping[Role, Stop]) -> Deadlines:
    """Deadlines for a stop in stages: pause, frontend, decode or aggregated, prefill.

    `stops` has the workers' roles; what the grace period leaves after them goes to the frontend, which needs it most:
    streams in flight end there.
    """
    workers = {role: stop.total_s + 1.0 for role, stop in stops.items()}
    left = wanted.grace_s - wanted.pause_s - KILL_MARGIN_S - sum(workers.values())
    drain = {Role.FRONTEND.value: max(FRONTEND_LEAST_S, round(left, 1))}
    for role in (Role.DECODE, Role.AGGREGATED, Role.PREFILL):
        if role in workers:
            drain[role.value] = workers[role]
    return Deadlines(start_s=wanted.start_s, pause_s=wanted.pause_s, drain_s=drain, grace_s=wanted.grace_s)


def needed_grace_s(wanted: schema.Deadlines, stops: Mapping[Role, Stop]) -> float:
    """The least grace period, in seconds, that holds the whole schedule."""
    return (
        wanted.pause_s + KILL_MARGIN_S + FRONTEND_LEAST_S + sum(stop.total_s + 1.0 for stop in stops.values())
    )
