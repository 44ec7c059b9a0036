"""How much of what was planned is there: per role, and whether that is less than all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launcher.plan.model import WORKER_ROLES, Plan
from launcher.supervise.events import ProcessState


@dataclass(frozen=True, slots=True)
class Capacity:
    """The workers of one role."""

    planned: int
    ready: int
    """Healthy now."""
    min_ready: int
    """Below it the deployment is not ready."""

    def to_json(self) -> dict[str, int]:
        return {"planned": self.planned, "ready": self.ready, "min_ready": self.min_ready}


def capacity(plan: Plan, states: Sequence[ProcessState]) -> dict[str, Capacity]:
    """Each worker role of the plan, in the plan's order."""
    healthy = {state.name for state in states if state.healthy}
    roles = dict.fromkeys(worker.role for worker in plan.workers)
    return {
        role.value: Capacity(
            planned=sum(worker.role is role for worker in plan.workers),
            ready=sum(worker.role is role and worker.name in healthy for worker in plan.workers),
            min_ready=plan.min_ready.get(role.value, 0),
        )
        for role in roles
        if role in WORKER_ROLES
    }
