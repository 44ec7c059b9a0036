"""Watches one incarnation of a process from its start to its end, and says what it sees."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import Protocol

from launcher.plan.model import Process

from . import procfs
from .child import Child
from .events import STOPPED
from .hooks import Shared
from .logwatch import LineWatch
from .output import Output
from .procfs import Proc
from .watch import REFUSED, RankCount, Starvation, Strikes, probe

OWN_END_S = 10.0
"""The longest that a process without a health page is left to end by itself."""
THAW_S = 1.0
"""After a freeze of all, how long the processes may take to go on one after the other."""


class Listener(Protocol):
    """Who is told. All calls come from the event loop's thread, and only while the child runs."""

    def announced(self, phase: str, seconds: float) -> None: ...

    def became_ready(self) -> None: ...

    def health_changed(self, reason: str) -> None:
        """After ready: unwell for `reason`, or well again where that is empty."""

    def too_late(self, reason: str) -> None:
        """Not ready within the plan's start deadline."""

    def condemn(self, reason: str) -> None:
        """To be taken for dead although it runs."""

    def stands_still(self) -> bool:
        """Stopped while others run; whether it may stay so for a while."""


class Vigil:
    """Probes, stopped processes, missing ranks, and the log of one child."""

    def __init__(self, process: Process, child: Child, shared: Shared, listener: Listener) -> None:
        self._process = process
        self._child = child
        self._shared = shared
        self._listener = listener
        self._watch = shared.watch
        self._ranks = RankCount(process.ranks) if process.ranks else None
        self._own_end_s = min(process.stop.leader_s, OWN_END_S)
        self._loop = asyncio.get_running_loop()
        self._over = False
        self._judging = False
        self._reason = ""
        self._aside_at: float | None = None
        """Since when a stopped process has been out of routing."""
        self.ready = False
        self.stopped = False
        """Whether a process of the tree is stopped by a signal, as last seen."""
        lines = LineWatch(
            process.fatal,
            process.phases,
            lambda line: self._tell(partial(self._fatal, line)),
            lambda name, line: self._tell(partial(self._announced, name, time.monotonic())),
        )
        self.output = Output(shared.pump, process.name, process.role.value, child, lines.see)
        self._task = asyncio.create_task(self._probe())

    def end(self) -> None:
        """Stop watching: the child has ended or was told to. Lines are still read."""
        self._over = True
        self._task.cancel()

    @property
    def _blind(self) -> bool:
        return self._over or not self._child.running

    # -- the log (called by the pump's thread, handed to the loop's)

    def _tell(self, call: partial[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed; nobody is left to tell
            self._loop.call_soon_threadsafe(call)

    def _fatal(self, line: str) -> None:
        if not self._blind:
            self._listener.condemn(f"its log says: {line.strip()[:300]}")

    def _announced(self, name: str, at: float) -> None:
        if not self._blind:
            self._listener.announced(name, at - self._child.started_at)

    # -- probes

    async def _probe(self) -> None:
        health = self._process.health
        if health is None:
            self.ready = True
            self._listener.became_ready()
            return
        strikes, starvation = Strikes(self._watch), Starvation(self._child.pid)
        refused_at: float | None = None
        while True:
            await asyncio.sleep(self._watch.interval_s if self.ready else self._watch.loading_s)
            reason = await probe(health, self._watch.timeout_s)
            if self._blind:
                return
            if not self.ready:
                if not reason:
                    self.ready = True
                    self._listener.became_ready()
                elif time.monotonic() - self._child.started_at > self._shared.plan.deadlines.start_s:
                    self._listener.too_late(reason)
                    return
                continue
            self.look_stopped()
            if self.stopped:
                strikes.forget()  # judged by its being stopped, not by its silence
                continue
            starved = starvation.share() if reason else 0.0
            dead = strikes.add(reason, late_s=self._shared.lag.recent(), starved=starved)
            # One late answer on a starved machine must not take a whole deployment out of its load balancer.
            unwell = reason if strikes.certain else ""
            if bool(unwell) != bool(self._reason):
                self._listener.health_changed(unwell)
            self._reason = unwell
            refused_at = (refused_at or time.monotonic()) if reason.endswith(REFUSED) else None
            if refused_at is not None and time.monotonic() - refused_at < self._own_end_s:
                # It has closed its health page: it ends by itself, as on a SIGTERM that somebody else sent. It gets the
                # time for that which it would get from us; nobody is sent to it any more.
                continue
            if dead:
                self._listener.condemn(f"{strikes.count} health probes failed, the last: {reason}")
                return

    # -- looks at /proc, when told to by the supervisor

    def observe(self, table: dict[int, Proc]) -> None:
        """Look at the tree in a scan of all processes: remembers the members, counts ranks, finds stopped ones."""
        members = self._child.tree.look(table)
        if self._blind:
            return
        if self._ranks is not None and (missing := self._ranks.missing(members)):
            self._listener.condemn(missing)
        elif any(proc.state == "T" for proc in members):
            self._note_stopped()

    def look_stopped(self) -> None:
        """Look whether the leader is stopped now (a child that stops announces itself by SIGCHLD)."""
        if self._blind:
            return
        found = procfs.look(self._child.pid)
        if found is not None and found.state == "T":
            self._note_stopped()

    def _note_stopped(self) -> None:
        self.stopped = True
        if not self._judging:
            self._judging = True
            self._reason = STOPPED
            if self.ready:
                self._listener.health_changed(self._reason)
            self._judge_later(time.monotonic())

    def _judge_later(self, since: float) -> None:
        due = time.monotonic() + self._watch.stopped_s
        self._loop.call_later(self._watch.stopped_s, self._judge, since, due)

    def _judge(self, since: float, due: float) -> None:
        """Stopped alone it is set aside, then dead; stopped with all others it is a frozen machine, and waited for."""
        if self._blind:
            self._judging = False
            return
        now = time.monotonic()
        if not any(proc.state == "T" for proc in self._child.tree.look()):
            self._judging = self.stopped = False
            self._aside_at = None
            self._reason = ""
            if self.ready:
                self._listener.health_changed("")
            return
        if self._shared.all_stopped():
            self._shared.frozen_at = now
        # Where this process itself was frozen (it comes late), the others may be about to go on as it did.
        late = now - due > self._watch.stopped_s
        thawing = now - self._shared.frozen_at < THAW_S
        if now - since > self._watch.frozen_s or not (late or thawing):
            if self._aside_at is None and self._listener.stands_still():
                self._aside_at = now
            if self._aside_at is None or now - self._aside_at > self._watch.dead_s:
                self._listener.condemn(f"{STOPPED} for {now - since:.2f} s")
                return
        self._judge_later(since)
