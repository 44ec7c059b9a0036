"""Ready means: every planned worker healthy, the frontend sees each of them, and what the plan claims is proven."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence

from launcher.plan.model import WORKER_ROLES, Plan, Role
from launcher.prove.frontend import Frontend
from launcher.prove.prover import Prover
from launcher.supervise.events import STOPPED, ProcessState, State

STARTING_S = 0.25
"""Seconds between looks before the deployment is ready."""
_PROGRESS = re.compile(r" is (?:starting|loading)(?: \([^)]*\))?")
"""How far a start has come has lines of its own in the log (phases)."""
SERVING_S = 2.0
"""Seconds between looks afterwards; a death or a recovery is looked at at once."""


class Readiness:
    """Looks again and again, and keeps the reasons why the deployment is not ready."""

    def __init__(
        self,
        plan: Plan,
        frontend: Frontend,
        prover: Prover,
        snapshot: Callable[[], Sequence[ProcessState]],
        announce: Callable[[str], None],
        unregistered: Callable[[Sequence[ProcessState]], list[str]] = lambda states: [],
        active: Callable[[], str] = lambda: Role.FRONTEND.value,
    ) -> None:
        """`unregistered`: the workers that are not in discovery, where it can say. `active`: the name of the frontend
        that takes new requests."""
        self.reasons: list[str] = ["starting"]
        self.ready = False
        self.ready_at: float | None = None
        """Monotonic seconds of the first time."""
        self.first = asyncio.Event()
        """Set when the deployment has been ready once."""
        self.draining = False
        self._plan = plan
        self._frontend = frontend
        self._prover = prover
        self._snapshot = snapshot
        self._announce = announce
        self._unregistered = unregistered
        self._active = active
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Something happened: do not wait for the next round."""
        self._changed.set()

    def drain(self) -> None:
        """From now on not ready, whatever is seen."""
        self.draining = True
        self._prover.stop()
        self._set(["draining"])

    async def run(self) -> None:
        """Look until cancelled."""
        self._prover.changed = self.look
        try:
            await self._run()
        finally:
            await self._prover.close()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if not self.draining:
                self._set(await self._missing())
            try:
                async with asyncio.timeout(SERVING_S if self.ready else STARTING_S):
                    await self._changed.wait()
            except TimeoutError:
                continue
            if not self.ready:
                # Events come in bursts; each look costs the frontend two requests.
                await asyncio.sleep(0.05)

    def _set(self, reasons: list[str]) -> None:
        if self.draining:
            reasons = ["draining"]
        was, self.ready = self.ready, not reasons
        changed = _told(reasons) != _told(self.reasons)
        self.reasons = reasons
        if self.ready and not was:
            if self.ready_at is None:
                self.ready_at = time.monotonic()
                self.first.set()
            else:
                self._announce("ready again")
        elif was and not self.ready:
            self._announce("not ready: " + "; ".join(reasons))
        elif changed and not self.ready:
            self._announce("waiting for: " + "; ".join(_short(reasons)))

    async def _missing(self) -> list[str]:
        states = {state.name: state for state in self._snapshot()}
        frontend = states.get(self._active())
        if frontend is None:
            # A part without one: its workers are well and can be found; whether anybody looks is the others' matter.
            absent = set(self._unregistered(list(states.values())))
            here = {state.ports.get("rpc") for state in states.values() if state.name not in absent}
            return self._workers(states, here, "in discovery")
        seen: set[int | None] | None = None
        why, blind = "", False
        if frontend.healthy:
            instances, why = await self._frontend.instances()
            if instances is not None:
                seen = {each.port for each in instances if each.host == self._plan.join.host}
            if instances == [] and not self._plan.join.alone:
                # With etcd away its page is empty (1.6.1) and it routes on: whether the model can be routed to decides.
                seen, blind = None, True
        reasons = []
        if not frontend.healthy:
            reasons.append(describe(frontend))
        elif seen is None and not blind:
            reasons.append(f"frontend does not answer: {why}")
        reasons += self._workers(states, seen)
        if reasons:
            return reasons
        blocked = await self._frontend.routable()
        if blocked:
            return [blocked]
        return self._prover.look(was_ready=self.ready_at is not None)

    def _workers(
        self,
        states: Mapping[str, ProcessState],
        seen: set[int | None] | None,
        where: str = "seen by the frontend",
    ) -> list[str]:
        """What each role lacks: before the first time every worker counts, afterwards `min_ready` of a role."""
        reasons = []
        for role in WORKER_ROLES:
            lacking = []
            good = 0
            for state in states.values():
                if state.role is not role:
                    continue
                if not state.healthy:
                    lacking.append(describe(state))
                elif seen is not None and state.ports.get("rpc") not in seen:
                    lacking.append(f"{state.name} is not {where}")
                else:
                    good += 1
            needed = good + len(lacking) if self.ready_at is None else self._plan.min_ready.get(role.value, 0)
            if good < needed:
                reasons += lacking
        return reasons


def describe(state: ProcessState) -> str:
    """What is the matter with a process, in words that do not contradict each other."""
    name, detail = state.name, state.detail
    why = f": {detail}" if detail else ""
    if state.state is State.WAITING:
        return f"{name} is {state.phase or 'waiting'}"
    if state.state is State.BACKOFF:
        return f"{name} {state.phase or 'restarts'}{f' ({detail})' if detail else ''}"
    if state.state in (State.FAILED, State.STOPPED, State.DRAINING):
        return f"{name} {'failed' if state.state is State.FAILED else f'is {state.state.value}'}{why}"
    if detail and state.pid is None:
        return f"{name} died{why}"
    if detail.startswith(STOPPED):
        return f"{name} is stopped (SIGSTOP){detail.removeprefix(STOPPED)}"
    if state.state is State.READY:
        return f"{name} is unwell{why}"
    return f"{name} is {state.state.value}{f' ({state.phase})' if state.phase else ''}{why}"


def _told(reasons: Sequence[str]) -> list[str]:
    """What of the reasons is news where it changes."""
    return [_PROGRESS.sub(" is loading", reason) for reason in reasons]


def _short(reasons: list[str], most: int = 6) -> list[str]:
    return reasons if len(reasons) <= most else [*reasons[:most], f"{len(reasons) - most} more"]
