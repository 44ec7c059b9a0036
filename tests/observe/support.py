"""Values and small servers for the tests of `launcher.observe`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from launcher.plan.model import Deadlines, Phase, Plan, Process, Role
from launcher.supervise.events import ExitInfo, ProcessState, State

T = TypeVar("T")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def run(coroutine: Coroutine[Any, Any, T], limit_s: float = 20.0) -> T:
    """Run it on uvloop, as the launcher does."""

    async def limited() -> T:
        async with asyncio.timeout(limit_s):
            return await coroutine

    result: T = uvloop.run(limited())
    return result


def process(name: str, **changes: Any) -> Process:
    """A process of a plan by its name."""
    role = Role(name.partition("-")[0])
    return Process(name=name, role=role, argv=("python", "-m", "worker"), env={}, **changes)


def plan(*processes: Process, run_dir: str = "/nowhere/run", **changes: Any) -> Plan:
    """A plan of these processes; a frontend and two decode workers where none is given."""
    chosen = processes or (
        process("frontend"),
        process("decode-0", gpus=("0",), phases=(Phase("weights", "x"), Phase("graphs", "y"))),
        process("decode-1", gpus=("1",)),
    )
    values: dict[str, Any] = {
        "target": "sim", "engine": "mocker", "simulated": True, "model": "openai/gpt-oss-120b", "run_dir": run_dir,
        "discovery_dir": f"{run_dir}/discovery", "http_host": "127.0.0.1", "http_port": 8000,
        "admin_host": "127.0.0.1", "admin_port": 9000, "processes": chosen,
        "deadlines": Deadlines(start_s=60, pause_s=0, drain_s={}, grace_s=30), "min_ready": {"decode": 1},
    }  # fmt: skip
    return Plan(**(values | changes))


def state(name: str, **changes: Any) -> ProcessState:
    """A process that is ready and well, started 10 s ago (monotonic 100) and ready after 5 s."""
    values: dict[str, Any] = {
        "name": name, "role": Role(name.partition("-")[0]), "pid": 4242, "state": State.READY, "phase": "ready",
        "phases": {"ready": 5.0}, "restarts": 0, "ports": {}, "started_at": 100.0, "ready_at": 105.0,
        "last_exit": None, "healthy": True,
    }  # fmt: skip
    return ProcessState(**(values | changes))


def killed(number: int = 9) -> ExitInfo:
    """A death by signal."""
    return ExitInfo(None, number, 110.0)


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """A TCP server on a free port of loopback; yields the port."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def answering(body: bytes, *, status: str = "200 OK", headers: str = "", delay_s: float = 0.0) -> Handler:
    """A server that answers every request with that body."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(delay_s)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)
        await writer.drain()

    return handle


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of a page, by the official parser, after a look at what that parser lets pass.

    The format wants each family once, in one group, and each series once. The parser gives counters the suffix
    `_total` where they lack it.
    """
    families: set[str] = set()
    series: set[str] = set()
    for line in text.split("\n")[:-1]:
        seen, name = (families, line.split()[2]) if line[0] == "#" else (series, line.rpartition(" ")[0])
        assert line.startswith("# HELP") or name not in seen, f"{name} is there twice"
        if not line.startswith("# HELP"):
            seen.add(name)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    """The one sample of that name that has these labels."""
    wanted = labels.items()
    hits = [
        number
        for (each, pairs), number in samples(text).items()
        if each == name and wanted <= dict(pairs).items()
    ]
    assert len(hits) == 1, f"{len(hits)} samples {name} with {labels}"
    return hits[0]
