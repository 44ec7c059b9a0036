"""The frontend's view of the workers, and its difference from what runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from launcher.plan.model import WORKER_ROLES, Role
from launcher.supervise.events import ProcessState

if TYPE_CHECKING:
    # For types alone: it brings aiohttp, and a quarter of a second before the first child.
    from launcher.prove.frontend import Frontend


async def unseen(frontend: Frontend, states: Iterable[ProcessState]) -> list[str] | None:
    """The healthy workers that the frontend does not route to; None where it does not say.

    Two pages: `/health` lists instances by port, as soon as it learns of them; the model's `ready` page counts those
    per role that requests go to, some seconds later (Dynamo 1.3.1: 7 to 10).
    """
    instances, _ = await frontend.instances()
    if instances is None:
        return None
    ports = {instance.port for instance in instances}
    workers = [state for state in states if state.role in WORKER_ROLES]
    healthy = [state for state in workers if state.healthy]
    missing = [state.name for state in healthy if state.ports.get("rpc") not in ports]
    counts = await routed(frontend)
    if counts is None:
        # Dynamo forgets a model while a whole role of it is away: no fault of the others, no reason to restart them.
        whole = {state.role for state in healthy} == {state.role for state in workers}
        return [state.name for state in healthy] if whole else missing
    for role in WORKER_ROLES:
        names = [state.name for state in healthy if state.role is role]
        # A role that the page does not name is not judged: a release may count in other words.
        if not any(name in missing for name in names) and counts.get(role, len(names)) < len(names):
            # It does not say which: the newest is the likeliest.
            newest = max(
                (state for state in healthy if state.role is role), key=lambda each: each.ready_at or 0
            )
            missing.append(newest.name)
    return missing


async def routed(frontend: Frontend) -> dict[Role, int] | None:
    """How many workers of each role requests go to; None where the model is not known."""
    answer = await frontend.model_page()
    namespaces = answer.body.get("namespaces") if isinstance(answer.body, dict) else None
    if not answer.ok or not isinstance(namespaces, dict):
        return None
    counts: dict[Role, int] = {}
    for namespace in namespaces.values():
        kinds = namespace.get("worker_types") if isinstance(namespace, dict) else None
        for name, kind in (kinds or {}).items():
            workers = kind.get("workers") if isinstance(kind, dict) else None
            if name in WORKER_ROLES and isinstance(workers, int):
                counts[Role(name)] = counts.get(Role(name), 0) + workers
    return counts
