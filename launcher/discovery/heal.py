"""Compares what the frontend sees with what runs, and heals the difference.

A healthy worker that the frontend does not route to costs its GPUs and nobody notices: its own health page stays 200
(Dynamo 1.3.1 to 1.6.1). First its entries are written anew, so that the frontend's watcher sees them come; a restart is
the last resort, of the frontend where it sees no worker at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from launcher.discovery.view import unseen
from launcher.plan.model import WORKER_ROLES, Role
from launcher.supervise.events import ProcessState
from launcher.supervise.logs import Log

if TYPE_CHECKING:
    # For types alone: it brings aiohttp, and a quarter of a second before the first child.
    from launcher.prove.frontend import Frontend

LOOK_S = 2.0
RESTORE_S = 15.0
"""Unseen for so long, both sides healthy: more than the 7 to 11 s that Dynamo 1.3.1 needs to route to a new worker."""
RESTART_S = 60.0
"""Unseen for so long in spite of restored entries."""


class Entries(Protocol):
    def restore(self, name: str) -> int: ...


class Healer:
    """Looks again and again; `replace(name, reason)` restarts a process within its budget."""

    def __init__(
        self,
        frontend: Frontend,
        snapshot: Callable[[], Sequence[ProcessState]],
        entries: Entries,
        replace: Callable[[str, str], None],
        log: Log,
    ) -> None:
        self.healed = 0
        """Workers whose entries were written anew since the start."""
        self._frontend = frontend
        self._snapshot = snapshot
        self._entries = entries
        self._replace = replace
        self._log = log
        self._since: dict[str, float] = {}
        self._restored: dict[str, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            states = self._snapshot()
            began = time.monotonic()
            missing = await unseen(self._frontend, states) if _served(states) else None
            if missing is None or time.monotonic() - began > 2 * LOOK_S:
                # Without an answer nothing is known, and a slow one is old. A frontend that never answers is its
                # own health probe's to judge.
                self._since.clear()
            else:
                self.judge(states, missing, time.monotonic())

    def judge(self, states: Iterable[ProcessState], missing: Sequence[str], now: float) -> None:
        """One look: `missing` are the healthy workers that the frontend does not route to."""
        by_name = {state.name: state for state in states}
        front_at = by_name[Role.FRONTEND.value].ready_at or now
        self._since = {name: since for name, since in self._since.items() if name in missing}
        late: list[str] = []
        for name in missing:
            # Neither side is blamed for the time before it, or the other, was there.
            since = max(self._since.setdefault(name, now), front_at, by_name[name].ready_at or now)
            if now - since >= RESTART_S:
                late.append(name)
            elif now - max(since, self._restored.get(name, since)) >= RESTORE_S:
                self._restored[name] = now
                self.healed += 1
                count = self._entries.restore(name)
                self._log(
                    f"{name} is healthy, but the frontend has not seen it for {now - since:.0f} s: "
                    f"wrote its {count} registrations anew",
                    "warning",
                )
        healthy = [state for state in by_name.values() if state.healthy and state.role in WORKER_ROLES]
        if len(late) == len(healthy) > 1:
            self._since.clear()
            self._replace(
                Role.FRONTEND.value, f"it has seen none of {len(late)} healthy workers for {RESTART_S:g} s"
            )
            return
        for name in late[:1]:  # one at a time: each restart changes what is seen
            del self._since[name]
            self._replace(name, f"the frontend has not seen it for {RESTART_S:g} s, though it is healthy")


def _served(states: Iterable[ProcessState]) -> bool:
    return any(state.role is Role.FRONTEND and state.healthy for state in states)
