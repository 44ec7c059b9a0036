"""When a process that died is started again: backoff with jitter, within a budget. Pure."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Times are seconds. The n-th death in a row waits `first_s * factor**(n-1)`, at most `max_s`. A row is of deaths
    within the window, each but the first of a process that had not served for `stable_s`."""

    enabled: bool = True
    budget: int = 5
    """Restarts of one process within `window_s`; the next death is final."""
    window_s: float = 600.0
    first_s: float = 0.5
    factor: float = 2.0
    max_s: float = 30.0
    stable_s: float = 10.0
    """Who was ready for so long and then dies comes back as fast as at its first death: waiting would cost capacity and
    help nobody. The budget counts that death all the same."""
    jitter: float = 0.2
    """Share of the delay that chance adds or takes, so that workers felled together do not return together."""
    never_ready_budget: int = 1
    """Restarts of a process that has never been ready: a wrong flag does not get better by repetition."""

    def __post_init__(self) -> None:
        if self.budget < 0 or self.never_ready_budget < 0:
            raise ValueError("a restart budget cannot be negative")
        if self.window_s <= 0 or self.first_s < 0 or self.factor < 1 or not 0 <= self.jitter < 1:
            raise ValueError(f"impossible restart policy: {self}")


class RestartBudget:
    """The deaths of one process, and what follows from them."""

    def __init__(
        self,
        policy: RestartPolicy,
        *,
        at_once: bool = False,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`at_once`: the first death of a window is answered without delay (the frontend: nothing serves without)."""
        self._policy = policy
        self._at_once = at_once
        self._chance = chance
        self._deaths: deque[float] = deque()
        self._row = 0

    def left(self, now: float) -> int:
        """Restarts still granted at `now` (monotonic seconds)."""
        self._forget(now)
        return max(0, self._policy.budget - len(self._deaths))

    def died(self, now: float, *, ever_ready: bool = True, served_s: float = 0.0) -> float | None:
        """Count a death; the seconds to wait before the restart, or None where it is final.

        `served_s`: for how long the process had been ready.
        """
        policy = self._policy
        self._forget(now)
        self._deaths.append(now)
        allowed = policy.budget if ever_ready else min(policy.budget, policy.never_ready_budget)
        if not policy.enabled or len(self._deaths) > allowed:
            return None
        self._row = 1 if served_s >= policy.stable_s else min(self._row + 1, len(self._deaths))
        count = self._row
        if self._at_once:
            if count == 1:
                return 0.0
            count -= 1
        delay = min(policy.first_s * policy.factor ** (count - 1), policy.max_s)
        return delay * (1 + policy.jitter * (2 * self._chance() - 1))

    def _forget(self, now: float) -> None:
        while self._deaths and self._deaths[0] <= now - self._policy.window_s:
            self._deaths.popleft()
