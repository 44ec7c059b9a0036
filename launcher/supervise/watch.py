"""Is a process that runs also well: HTTP probes, stopped processes, missing ranks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from launcher.plan.model import Http, Ranks

from . import procfs
from .procfs import Proc


@dataclass(frozen=True, slots=True)
class Watch:
    """How processes are watched; times in seconds."""

    interval_s: float = 1.0
    """Between probes of a ready process."""
    loading_s: float = 0.25
    """Between probes of a process that is not ready yet; nothing but the start deadline counts there."""
    timeout_s: float = 2.0
    """For the answer to one probe."""
    failures: int = 3
    """Consecutive failed probes of a ready process that mean its death."""
    stopped_s: float = 0.15
    """How long a process may be stopped (SIGSTOP) while others run, before that has consequences."""
    dead_s: float = 5.0
    """The same before it means death, where `on_stopped` took it out of routing: a debugger or a dump of its memory
    goes by, and a kill would cost a load of the weights and every stream that it has."""
    frozen_s: float = 120.0
    """The same where all processes are stopped together: somebody froze the machine and will let it go on."""
    scan_s: float = 2.0
    """Between looks at all processes: ranks, stopped descendants, stray zombies."""
    lag_s: float = 1.0
    """A probe that failed while this event loop itself came late by this much proves nothing."""
    starved_share: float = 0.3
    """A failed probe of a process that waited for a CPU for this share of the time counts only a quarter."""


async def probe(http: Http, timeout_s: float) -> str:
    """GET the health page; empty when it answered 2xx, else what went wrong, in a few words."""
    try:
        async with asyncio.timeout(timeout_s):
            status = await _status(http)
    except TimeoutError:
        return f"no answer from {http.url} in {timeout_s:g} s"
    except (OSError, ValueError) as error:
        return f"{http.url}: {_reason(error)}"
    return "" if 200 <= status < 300 else f"{http.url} answered {status}"


async def _status(http: Http) -> int:
    reader, writer = await asyncio.open_connection(http.host, http.port, limit=1 << 14)
    try:
        host = f"[{http.host}]" if ":" in http.host else http.host
        request = f"GET {http.path} HTTP/1.1\r\nHost: {host}:{http.port}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode("latin-1"))
        line = await reader.readline()
        found = re.match(rb"HTTP/1\.[01] (\d{3})\b", line)
        if found is None:
            raise ValueError("not an HTTP answer" if line else "closed without an answer")
        return int(found[1])
    finally:
        # The body does not matter: abort rather than wait for a server that is slow to close.
        writer.transport.abort()


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


class RankCount:
    """Counts the descendants that a process must have. Their absence counts only once all were there."""

    def __init__(self, ranks: Ranks) -> None:
        self._pattern = re.compile(ranks.pattern)
        self._wanted = ranks.count
        self._names: dict[tuple[int, int], bool] = {}
        self.complete = False

    def missing(self, members: Iterable[Proc]) -> str:
        """What to say of the members of a tree (the leader included or not); empty where nothing is missing."""
        count = 0
        seen: dict[tuple[int, int], bool] = {}
        for proc in members:
            if proc.dead:
                continue
            match = self._names.get(proc.key)
            if not match:
                # A process changes its command line by exec or by setting a title: a "no" is asked again.
                match = self._pattern.search(procfs.cmdline(proc.pid)) is not None
            seen[proc.key] = match
            count += match
        self._names = seen
        if count >= self._wanted:
            self.complete = True
            return ""
        if not self.complete:
            return ""
        return f"{self._wanted - count} of {self._wanted} ranks are gone"


REFUSED = "connection refused"
"""How the reason of a probe ends that nobody listened for: no late answer, however starved the machine."""


class Strikes:
    """Consecutive failed probes; those of a starved machine count less, or not at all."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._points = 0
        self.count = 0
        """Failed probes in a row."""

    @property
    def certain(self) -> bool:
        """Whether what failed in a row is worth one probe of a process that had a CPU: enough to call it unwell."""
        return self._points >= 4

    def forget(self) -> None:
        """Start counting anew."""
        self._points = self.count = 0

    def add(self, reason: str, *, late_s: float = 0.0, starved: float = 0.0) -> bool:
        """Count the outcome of a probe (`reason` empty: well); True when it is one too many.

        `late_s`: by how many seconds our own event loop came late of late. `starved`: for what share of the time
        the process was ready to run without a CPU to run on.
        """
        if not reason:
            self.forget()
        elif late_s < self._watch.lag_s:
            self.count += 1
            late = starved >= self._watch.starved_share and not reason.endswith(REFUSED)
            self._points += 1 if late else 4
        return self._points >= 4 * self._watch.failures


class Starvation:
    """The share of the time since the last look for which a process waited for a CPU."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._at, self._delay = time.monotonic(), procfs.run_delay(pid)

    def share(self) -> float:
        """Since the last call (or the start), in CPUs: 1.0 is one thread that waited all the time."""
        before, delay = self._at, self._delay
        self._at, self._delay = time.monotonic(), procfs.run_delay(self._pid)
        return max(0.0, self._delay - delay) / max(self._at - before, 1e-3)


class Lag:
    """How late the event loop comes: a task that sleeps, and looks how long that took.

    The launcher and its children share the machine. Where even this small sleep is late, or the whole process
    was frozen, a child's silence is no proof of anything.
    """

    def __init__(self, step_s: float = 0.25, memory_s: float = 6.0) -> None:
        self._step_s = step_s
        self._memory_s = memory_s
        self._late: list[tuple[float, float]] = []

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._step_s)
            now = time.monotonic()
            self._late = [(at, late) for at, late in self._late if at > now - self._memory_s]
            late = now - before - self._step_s
            if late > 0.05:
                self._late.append((now, late))

    def recent(self) -> float:
        """The longest delay of the last seconds, in seconds."""
        return max((late for _, late in self._late), default=0.0)
