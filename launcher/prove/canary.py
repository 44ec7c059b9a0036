"""Finds a worker that answers its health page and does no work: its event loop is stuck, its engine is dead.

Dynamo's health page is served beside the engine, and stays 200. So every healthy worker's own counters are read again
and again. Where they move, it works, and a deployment under load pays nothing more. Where they stand still the worker
gets a completion of a few tokens by its id (the canary), lest idle pass for stuck. It is taken for dead when it has had
work in hand for `timeout_s` without any progress, or when `failures` canaries in a row were answered with an error.

No false alarm: a worker that is loading is not healthy and not asked; one that calls itself healthy and still loads has
never done anything, and has as long as a start may take; one under full load makes progress; where the frontend is too
busy to pass the canary on, the worker has nothing in hand; while this process or the whole machine stands still, no
time counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from launcher.observe.exposition import Page
from launcher.plan.model import WORKER_ROLES, Canary, Plan, Role
from launcher.prove.frontend import Answer, Frontend
from launcher.prove.kv_routing import unseen
from launcher.supervise.events import ProcessState

WORDS = 8
"""Of a canary's prompt: less than one KV block, so that no prefix cache and no router keeps anything of it."""
TOKENS = 4
ENGINE_PROGRESS = (
    "vllm:iteration_tokens_total_sum",
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
)
"""The engine's own counters, which move with each of its steps."""
PROGRESS = "dynamo_component_response_bytes_total"
"""Where an engine has none of its own: what the worker sent back. An answer that is an error counts too."""
IN_HAND = "dynamo_component_inflight_requests"
LATE_S = 1.0
"""While this process comes late by so much, nothing is judged."""
BUSY = 503
"""A frontend's own refusal. Less than 500 refuses our request, and where there is no answer the counters judge."""
SETTLED_LOOKS = 6
"""An error counts only where worker and frontend have been well for so many intervals: until a new worker is routed to
(Dynamo 1.3.1: 7 to 23 s), asking for it by its id is an error."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A worker's counters."""

    progress: float
    in_hand: float
    """Requests that it has and has not answered yet."""


def read(page: Page) -> Reading:
    """What a worker's page says."""
    own = [total for name in ENGINE_PROGRESS if (total := page.total(name)) is not None]
    progress = sum(own) if own else _generate(page, PROGRESS)
    return Reading(progress, _generate(page, IN_HAND))


def _generate(page: Page, name: str) -> float:
    # A worker's other endpoints (clear_kv_blocks, an indexer's queries) answer whatever the engine does.
    return sum(
        value
        for labels, value in page.values(name)
        if labels.get("dynamo_endpoint", "generate") == "generate"
    )


class Judge:
    """What is known of one incarnation of a worker. Pure: time comes in from outside."""

    def __init__(self, canary: Canary) -> None:
        self._canary = canary
        self._last: Reading | None = None
        self.worked = False
        """Whether it has done anything at all."""
        self.asked = False
        """Whether it got a canary since it was last seen to work. A gauge of requests in hand alone may be wrong."""
        self.stuck_s = 0.0
        """For how long it has had work in hand, that canary too, without any progress."""
        self.errors = 0
        """Canaries in a row that were answered with an error."""

    def see(self, now: Reading, elapsed_s: float) -> bool:
        """Take a reading, `elapsed_s` after the one before; True where the worker has yet to show that it works."""
        last, self._last = self._last, now
        self.worked = self.worked or now.progress > 0
        if last is None:
            return True
        if now.progress != last.progress:
            self.stuck_s, self.asked = 0.0, False
            return False
        if self.asked and now.in_hand > 0:
            # A pause of ours, or of the machine, is no time in which the worker could have worked.
            self.stuck_s += min(elapsed_s, 2 * self._canary.interval_s)
        else:
            self.stuck_s = 0.0
        return True

    def answered(self, answer: Answer) -> None:
        """Take a canary's answer."""
        if answer.ok:
            self.errors = 0
        elif answer.status >= 500 and answer.status != BUSY:
            self.errors += 1

    def verdict(self, start_s: float) -> str:
        """Why the worker is to be taken for dead; empty where it is not. `start_s`: how long a start may take."""
        if self.stuck_s >= (self._canary.timeout_s if self.worked else start_s):
            return (
                f"no progress in {self.stuck_s:.0f} s with requests in hand, though its health page answers"
            )
        if self.errors >= self._canary.failures:
            return f"{self.errors} small requests in a row failed, though its health page answers"
        return ""


class Watcher:
    """Looks at every worker of this node; `condemn(name, reason)` takes one for dead."""

    def __init__(
        self,
        plan: Plan,
        frontend: Frontend,
        snapshot: Callable[[], Sequence[ProcessState]],
        condemn: Callable[[str, str], None],
        late_s: Callable[[], float],
    ) -> None:
        """`late_s`: how late this process's event loop came of late, in seconds."""
        assert plan.canary is not None
        self._plan = plan
        self._canary = plan.canary
        self._frontend = frontend
        self._snapshot = snapshot
        self._condemn = condemn
        self._late_s = late_s
        self._judges: dict[tuple[str, int], Judge] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._looked_at = 0.0
        self._asked: Counter[str] = Counter()
        self._answers = False

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._canary.interval_s)
                await self.look()
        finally:
            for task in self._asking.values():
                task.cancel()

    async def look(self) -> None:
        """One round over all workers."""
        states = [state for state in self._snapshot() if state.healthy and state.role in WORKER_ROLES]
        pages = await asyncio.gather(*(self._frontend.metrics(self._system(state)) for state in states))
        now = time.monotonic()
        elapsed, self._looked_at = now - self._looked_at, now
        if self._late_s() > LATE_S:
            return
        judges = {(state.name, state.incarnation): Judge(self._canary) for state in states} | self._judges
        self._judges = {key: judges[key] for key in ((state.name, state.incarnation) for state in states)}
        silent = []
        for state, page in zip(states, pages, strict=True):
            judge = self._judges[state.name, state.incarnation]
            # A page that does not come is the health probe's to judge.
            if page is not None and judge.see(read(page), elapsed):
                silent.append(state)
        start_s = max(self._plan.deadlines.start_s, self._canary.timeout_s)
        verdicts = {
            state.name: self._judges[state.name, state.incarnation].verdict(start_s) for state in states
        }
        dead = [state for state in states if verdicts[state.name]]
        if dead:
            # One at a time, and another one each time: who failed with it may only have been its partner.
            first = min(dead, key=lambda state: state.restarts)
            self._judges.clear()
            self._condemn(first.name, verdicts[first.name])
        elif silent:
            await self._ask(silent, states)

    def _system(self, state: ProcessState) -> str:
        return f"http://{self._plan.join.host}:{state.ports.get('system')}"

    async def _ask(self, silent: Sequence[ProcessState], states: Sequence[ProcessState]) -> None:
        if (await self._frontend.model_page()).status == 404:
            return  # no worker of it is known yet, or again
        instances, _ = await self._frontend.instances()
        host = self._plan.join.host
        numbers = {each.port: each.number for each in instances or () if each.host == host}
        known = {state.name: numbers[port] for state in states if (port := state.ports.get("rpc")) in numbers}
        for state in silent:
            running = self._asking.get(state.name)
            if state.name in known and (running is None or running.done()):
                partner = self._partner(state, [each for each in states if each.name in known])
                task = asyncio.create_task(self._one(state, partner, known), name=f"canary {state.name}")
                self._asking[state.name] = task
                self._asked[state.name] += 1
                self._judges[state.name, state.incarnation].asked = True

    def _partner(self, state: ProcessState, states: Sequence[ProcessState]) -> ProcessState | None:
        """Who does the other half of a request, another one each time; None where one worker does all of it."""
        role = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}.get(state.role)
        others = [each for each in states if each.role is role]
        return others[(self._asked[state.name]) % len(others)] if others else None

    async def _one(self, state: ProcessState, partner: ProcessState | None, known: Mapping[str, int]) -> None:
        pins = {
            {Role.PREFILL: "prefill_worker_id", Role.DECODE: "decode_worker_id"}.get(
                each.role, "backend_instance_id"
            ): known[each.name]
            for each in (state, partner)
            if each is not None
        }
        request = {
            "model": self._plan.model,
            "prompt": unseen(WORDS),
            "max_tokens": TOKENS,
            "nvext": pins,
        }
        answer = await self._frontend.post("/v1/completions", request, self._canary.timeout_s)
        # Until one was answered at all, an error may be this deployment's answer to requests such as ours.
        self._answers = self._answers or answer.ok
        judge = self._judges.get((state.name, state.incarnation))
        if judge is not None and self._answers and (answer.ok or self._settled(state)):
            judge.answered(answer)

    def _settled(self, state: ProcessState) -> bool:
        frontends = [each for each in self._snapshot() if each.role is Role.FRONTEND]
        since = max(each.ready_at or time.monotonic() for each in (state, *frontends))
        return time.monotonic() - since > SETTLED_LOOKS * self._canary.interval_s
