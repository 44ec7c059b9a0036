"""A worker's process tree: who belongs to it, also after leaving its session, and how it is ended.

Membership is remembered: a descendant that double-forks or calls setsid re-parents to this process (a
subreaper), where its parent no longer tells whose it was. Three things still do: an earlier look at the tree, the
session of the leader, and the marker that the leader's environment carries to everything below it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

from . import procfs
from .procfs import Proc

MARKER = "LAUNCHER_PROCESS"
"""Variable in every child's environment: `<run>/<process name>/<incarnation>`."""


class Tree:
    """The processes that descend from one leader.

    The leader must be a direct child of this process that nobody else reaps: its pid, group and session then
    cannot be reused while the tree is being ended.
    """

    def __init__(self, leader: int, marker: str = "") -> None:
        self.leader = leader
        self._marker = f"{MARKER}={marker}".encode() if marker else b""
        self._known: dict[tuple[int, int], int] = {}
        """Identity to depth below the leader; depth orders the kill."""
        self._strangers: set[tuple[int, int]] = set()
        """Orphans whose environment was read and names somebody else."""
        found = procfs.look(leader)
        if found is not None:
            self._known[found.key] = 0

    def look(self, table: dict[int, Proc] | None = None) -> list[Proc]:
        """The members alive or zombie now, the leader included, shallow ones first; remembers what it finds.

        `table` is a scan to share between trees; without it one is made.
        """
        if table is None:
            table = procfs.scan()
        members: dict[int, int] = {}
        for (pid, start), depth in list(self._known.items()):
            proc = table.get(pid)
            if proc is None or proc.start != start:
                del self._known[(pid, start)]
            else:
                members[pid] = depth
        for proc in table.values():
            if proc.pid not in members and (proc.sid == self.leader or self._is_orphan_of_mine(proc)):
                members[proc.pid] = 1
        below = procfs.children(table)
        queue = list(members)
        while queue:
            pid = queue.pop()
            for child in below.get(pid, ()):
                if members.get(child.pid, -1) <= members[pid]:
                    members[child.pid] = members[pid] + 1
                    queue.append(child.pid)
        for pid, depth in members.items():
            self._known[table[pid].key] = depth
        return sorted((table[pid] for pid in members), key=lambda proc: members[proc.pid])

    def _is_orphan_of_mine(self, proc: Proc) -> bool:
        if not self._marker or proc.ppid != os.getpid() or proc.dead or proc.key in self._strangers:
            return False
        if self._marker in procfs.environ(proc.pid).split(b"\0"):
            return True
        self._strangers.add(proc.key)
        return False

    def signal_group(self, signum: int, *, spare_leader: bool = True) -> int:
        """Signal the members in the leader's process group; returns how many there were."""
        count = 0
        for proc in self.look():
            if proc.pgid == self.leader and not (spare_leader and proc.pid == self.leader):
                count += procfs.send(proc, signum)
        return count

    def kill_once(self) -> list[Proc]:
        """SIGKILL every living member and reap what is dead; returns those that were alive.

        The leader goes first, then the deepest: a parent that manages others (Open MPI's orted) would react to
        losing one, and its own end would only orphan the rest.
        """
        members = self.look()
        alive = [proc for proc in members if not proc.dead]
        for proc in members:
            if proc.dead and proc.pid != self.leader and proc.ppid == os.getpid():
                procfs.reap(proc.pid)
        leader = [proc for proc in alive if proc.pid == self.leader]
        rest = [proc for proc in reversed(alive) if proc.pid != self.leader]
        for proc in leader + rest:
            procfs.send(proc, signal.SIGKILL)
        return alive

    async def settle(self, timeout_s: float) -> bool:
        """Wait until nothing but the leader's zombie is left; False where something still is."""
        deadline = time.monotonic() + timeout_s
        delay = 0.005
        while any(not proc.dead for proc in self._reap()):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.1)
        return True

    def _reap(self) -> list[Proc]:
        members = self.look()
        for proc in members:
            if proc.dead and proc.pid != self.leader and proc.ppid == os.getpid():
                procfs.reap(proc.pid)
        return members

    async def kill(self, timeout_s: float = 10.0) -> list[Proc]:
        """End the whole tree; returns what survived `timeout_s` seconds (a process stuck in the kernel)."""
        deadline = time.monotonic() + timeout_s
        delay = 0.002
        while alive := self.kill_once():
            if time.monotonic() >= deadline:
                return alive
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.1)
        return []
