"""Where CPUs are few, one worker of each role starts before the others."""

from __future__ import annotations

import time

from launcher.plan.model import Http, Process
from launcher.supervise.events import Kind
from launcher.supervise.supervisor import Supervisor
from tests.supervise.conftest import Bench, free_port, plan_of, process, server, soon, supervised


def started(bench: Bench, name: str) -> float:
    return bench.of(Kind.STARTED, name)[0].at


def healthy(bench: Bench, name: str) -> float:
    return bench.of(Kind.HEALTHY, name)[0].at


async def all_ready(supervisor: Supervisor) -> None:
    assert await supervisor.wait_healthy()


def several(role: str, number: int) -> list[Process]:
    return [server(f"{role}-{each}") for each in range(number)]


def test_the_others_wait_for_one_of_each(bench: Bench) -> None:
    plan = plan_of(server("helper-0"), server("frontend"), *several("prefill", 2), *several("decode", 3))
    supervised(bench, plan, all_ready, head_start_s=20.0)
    first = ("helper-0", "frontend", "prefill-0", "decode-0")
    ready = max(healthy(bench, name) for name in first)
    assert all(started(bench, name) < ready for name in first)
    assert started(bench, "prefill-1") >= max(healthy(bench, name) for name in ("frontend", "prefill-0"))
    for name in ("decode-1", "decode-2"):
        assert started(bench, name) >= ready


def test_nobody_waits_for_longer_than_the_head_start(bench: Bench) -> None:
    loads_for_ever = process("decode-0", health=Http("127.0.0.1", free_port(), "/"))
    plan = plan_of(loads_for_ever, server("decode-1"))
    began = time.monotonic()

    async def check(supervisor: Supervisor) -> None:
        await supervisor.launched.wait()
        assert [state.name for state in supervisor.snapshot() if state.pid is not None] == ["decode-0"]
        await soon(lambda: bool(bench.of(Kind.HEALTHY, "decode-1")))

    supervised(bench, plan, check, head_start_s=0.3)
    assert started(bench, "decode-1") - began >= 0.3


def test_all_at_once_without_one(bench: Bench) -> None:
    plan = plan_of(*several("decode", 3))

    async def check(supervisor: Supervisor) -> None:
        await supervisor.launched.wait()
        assert all(state.pid is not None for state in supervisor.snapshot())

    supervised(bench, plan, check)


def test_a_stop_meanwhile_starts_nobody_else(bench: Bench) -> None:
    plan = plan_of(process("decode-0", health=Http("127.0.0.1", free_port(), "/")), server("decode-1"))

    async def check(supervisor: Supervisor) -> None:
        await supervisor.launched.wait()

    supervised(bench, plan, check, head_start_s=20.0)
    assert not bench.of(Kind.STARTED, "decode-1")
