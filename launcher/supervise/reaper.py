"""Collects zombies that nobody else waits for: orphans that re-parented to this process."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Container

from . import procfs
from .procfs import Proc


def reap_strays(table: dict[int, Proc], leaders: Container[int]) -> int:
    """Reap our zombie children that are orphans of a worker's tree; returns how many.

    `leaders`: pids that a `Child` waits for itself. Every worker has a session of its own, so a zombie of our own
    session is somebody's `subprocess.run` within this process, and left alone.
    """
    me = os.getpid()
    ours = os.getsid(0)
    count = 0
    for proc in table.values():
        if proc.ppid == me and proc.state == "Z" and proc.pid not in leaders and proc.sid != ours:
            count += procfs.reap(proc.pid)
    return count


def kill_strays(table: dict[int, Proc], leaders: Container[int]) -> list[Proc]:
    """At the end of a run: SIGKILL what descends from us, is in no tree and not of our session; returns those alive."""
    ours = os.getsid(0)
    alive = [
        proc
        for proc in procfs.descendants(table, os.getpid())
        if proc.sid != ours and proc.pid not in leaders and not proc.dead
    ]
    for proc in reversed(alive):
        procfs.send(proc, signal.SIGKILL)
    return alive


async def sweep(timeout_s: float = 5.0) -> bool:
    """End and reap every stray; False where one was left after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        table = procfs.scan()
        reap_strays(table, ())
        if not kill_strays(table, ()):
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
