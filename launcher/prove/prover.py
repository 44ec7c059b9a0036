"""Tries the plan's claims once the deployment can be asked, and keeps what was found.

Before the first time ready a proof whose policy is `require` holds readiness back until it passes; one that can never
pass ends the run. What was proven is tried again when something that it depends on was started anew: then a failure is
a warning, except for the completion, as a frontend that answers nothing is not ready whatever it was before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from launcher.plan.model import WORKER_ROLES, Role
from launcher.prove import kv_routing, transfer
from launcher.prove.claimed import COMPLETION, TOOL_CALL, Claimed
from launcher.prove.proof import Outcome, Proof, failed
from launcher.supervise.events import ProcessState
from launcher.supervise.logs import Log

RETRY_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Waits between tries of a proof that holds readiness back; the last one goes on for ever."""
WARN_TRIES = 2
"""Tries of a proof whose failure is only a warning: the first may have met a deployment that was still settling."""
AGAIN_TRIES = len(RETRY_S)
"""The same after a restart: a new worker is healthy seconds before the frontend routes to it."""


@dataclass(slots=True)
class Trial:
    """One claim and what became of it."""

    name: str
    prove: Callable[[], Awaitable[Sequence[Proof]]]
    roles: tuple[Role, ...]
    """A new incarnation of a process of these roles makes it due again."""
    key: tuple[tuple[str, int], ...] | None = None
    """The incarnations that it was tried with; None before the first time."""
    tries: int = 0
    due_at: float = 0.0
    settled: bool = False
    """Passed, or given up on as a warning."""
    found: list[Proof] = field(default_factory=list)
    """Of the last try."""


class Prover:
    """Call `look` again and again; it starts what is due and says what still holds back."""

    def __init__(
        self,
        claimed: Claimed,
        snapshot: Callable[[], Sequence[ProcessState]],
        log: Log,
        *,
        changed: Callable[[], None] = lambda: None,
        fail: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`changed`: a proof has ended. `fail`: a required proof can never pass, and why."""
        self.results: dict[str, Proof] = {}
        """By name, in the order in which they were tried first."""
        self.changed = changed
        self._claimed = claimed
        self._snapshot = snapshot
        self._log = log
        self._fail = fail
        self._task: asyncio.Task[None] | None = None
        self._was_ready = False
        self._stopped = False
        everyone = (Role.FRONTEND, *WORKER_ROLES)
        self._trials = [
            Trial(COMPLETION, claimed.completion, (Role.FRONTEND,)),
            Trial(TOOL_CALL, claimed.tool_call, (Role.FRONTEND,)),
            Trial(kv_routing.NAME, claimed.kv_routing, everyone),
            Trial(transfer.NAME, claimed.transfer, (Role.PREFILL, Role.DECODE)),
        ]

    def look(self, *, was_ready: bool) -> list[str]:
        """What holds readiness back while enough processes are well; starts what is due."""
        self._was_ready = was_ready
        if self._task is not None and self._task.done():
            if not self._task.cancelled():
                self._task.result()  # a fault of ours ends the run, not its log
            self._task = None
        if self._task is None and not self._stopped:
            due = self._due()
            if due is not None:
                self._task = asyncio.create_task(self._try(due), name=f"prove {due.name}")
        waiting = [
            trial
            for trial in self._trials
            if not trial.settled and (not was_ready or trial.name == COMPLETION)
        ]
        failures = [proof.reason() for trial in waiting for proof in trial.found if self._gates(proof)]
        return failures or [f"proving: {trial.name}" for trial in waiting[:1]]

    def _due(self) -> Trial | None:
        now = time.monotonic()
        for trial in self._trials:
            key = self._key(trial)
            if key is not None and trial.key not in (None, key):
                trial.key, trial.settled, trial.tries, trial.due_at = None, False, 0, 0.0
                trial.found = []
            if key is not None and not trial.settled and trial.due_at <= now:
                return trial
            if trial.name == COMPLETION and not trial.settled:
                # Nothing else can be asked of a deployment that answers nothing.
                return None
        return None

    def _key(self, trial: Trial) -> tuple[tuple[str, int], ...] | None:
        """The incarnations that it depends on; None while one of them is not well."""
        states = [state for state in self._snapshot() if state.role in trial.roles]
        if not all(state.healthy for state in states):
            return None
        return tuple((state.name, state.incarnation) for state in states)

    def _gates(self, proof: Proof) -> bool:
        """Whether a result keeps traffic out."""
        if proof.ok or self._claimed.policy(proof.name) != "require":
            return False
        return not self._was_ready or proof.name == COMPLETION

    async def _try(self, trial: Trial) -> None:
        key, began = self._key(trial), time.monotonic()
        proofs: Sequence[Proof]
        try:
            proofs = await trial.prove()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # An answer of a shape that nobody foresaw must not end the run.
            proofs = (failed(trial.name, f"an answer of unknown shape: {type(error).__name__}: {error}"),)
        taken = (time.monotonic() - began) / max(1, len(proofs))
        trial.key, trial.tries = key, trial.tries + 1
        trial.found = [replace(proof, seconds=taken) for proof in proofs]
        gating = [proof for proof in trial.found if self._gates(proof)]
        most = AGAIN_TRIES if self._was_ready else WARN_TRIES
        trial.settled = all(proof.ok for proof in trial.found) or (not gating and trial.tries >= most)
        trial.due_at = time.monotonic() + RETRY_S[min(trial.tries, len(RETRY_S)) - 1]
        for proof in trial.found:
            self._keep(proof, last=trial.settled)
        hopeless = next((proof for proof in gating if proof.final), None)
        if hopeless is not None and not self._was_ready:
            self._fail(hopeless.reason())
        self.changed()

    def _keep(self, proof: Proof, *, last: bool) -> None:
        """Keep a result, and say in the log what is news: a failure that gates at once, another at its last try."""
        before = self.results.get(proof.name)
        self.results[proof.name] = proof
        if self._gates(proof):
            # One that ends the run is told as its reason.
            if not proof.final and (before is None or before.text != proof.text):
                self._log(proof.reason(), "error")
        elif not proof.ok:
            if last:
                self._log(proof.reason(), "warning")
        elif proof.outcome is Outcome.PASSED and before is not None and not before.ok:
            self._log(f"{proof.name} proven now: {proof.text}")

    def stop(self) -> None:
        """Try nothing more: whoever drains does not wait for our own requests."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop, and wait for it."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def to_json(self) -> list[dict[str, Any]]:
        """The results with the policy of each."""
        return [
            {**proof.to_json(), "policy": self._claimed.policy(name)} for name, proof in self.results.items()
        ]
