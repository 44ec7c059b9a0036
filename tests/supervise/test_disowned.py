"""A process that SIGKILL does not end in time (stuck in the kernel) is not taken for its successor when it ends."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import Any

import pytest

from launcher.supervise import procfs
from launcher.supervise.child import Child
from launcher.supervise.events import Kind
from launcher.supervise.supervisor import Supervisor
from launcher.supervise.tree import Tree
from tests.supervise.conftest import Bench, plan_of, server, soon, supervised


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Pids whose trees no kill of ours reaches; who waits for their end gives up after 0.2 s."""
    chosen: set[int] = set()
    kill_once, finish = Tree.kill_once, Child.finish

    def kill(self: Tree) -> Any:
        return [] if self.leader in chosen else kill_once(self)

    async def wait(self: Child, settle_s: float = 0.0, timeout_s: float = 10.0) -> list[procfs.Proc]:
        return await finish(self, settle_s, 0.2 if self.pid in chosen else timeout_s)

    monkeypatch.setattr(Tree, "kill_once", kill)
    monkeypatch.setattr(Child, "finish", wait)
    return chosen


@pytest.mark.parametrize("reaped_first", [False, True])
def test_a_late_end_is_nobodys_death(bench: Bench, unkillable: set[int], reaped_first: bool) -> None:
    deaths: list[int] = []

    async def check(supervisor: Supervisor) -> None:
        assert await supervisor.wait_healthy()
        (old,) = [state.pid for state in supervisor.snapshot() if state.name == "decode-0"]
        assert old is not None
        unkillable.add(old)
        supervisor.condemn("decode-0", "stuck")
        await soon(lambda: len(bench.of(Kind.HEALTHY, "decode-0")) == 2)
        died = len(deaths)
        os.kill(old, signal.SIGKILL)
        if reaped_first:
            while (found := procfs.look(old)) is not None and found.state != "Z":
                time.sleep(0.001)  # noqa: ASYNC251 (the event loop must not learn of the end first)
            procfs.reap(old)
        await soon(lambda: not os.path.exists(f"/proc/{old}"))
        await soon(lambda: "has ended" in bench.path.read_text())
        (state,) = [state for state in supervisor.snapshot() if state.name == "decode-0"]
        assert (state.healthy, state.restarts, state.detail) == (True, 1, "")
        assert len(deaths) == died == 1

    supervised(
        bench,
        plan_of(server("decode-0")),
        check,
        on_death=lambda process, number: deaths.append(number),
        respawn=lambda process, number: dataclasses.replace(server("decode-0"), incarnation=number),
    )
    assert len(bench.of(Kind.EXITED, "decode-0")) == 1  # its successor's, at the stop
