"""Small real processes and plans to supervise. Every wait is on an event or a condition, with a wide limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from launcher.findings import Exit
from launcher.plan.model import Deadlines, Http, Plan, Process, Role, Stop
from launcher.supervise import linux
from launcher.supervise.events import Event, Kind
from launcher.supervise.hooks import Hooks
from launcher.supervise.logpump import LogPump
from launcher.supervise.logwriter import LogWriter
from launcher.supervise.policy import RestartPolicy
from launcher.supervise.supervisor import Supervisor
from launcher.supervise.watch import Watch

T = TypeVar("T")
LIMIT_S = 40.0
"""No test takes a tenth of this on an idle machine."""

HTTP = """
import os, signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    peer, _ = server.accept()
    peer.recv(4096)
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    peer.close()
"""
"""A healthy process: answers every request with 200."""


def python(program: str, *args: str | int) -> tuple[str, ...]:
    """The command line of a small Python program (no site packages: it starts in some 15 ms)."""
    return (sys.executable, "-I", "-S", "-u", "-c", program, *(str(arg) for arg in args))


def free_port() -> int:
    """A port that nobody takes meanwhile: outside the range from which the kernel gives ports to connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it on uvloop, as the launcher does, within the limit."""

    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S):
            return await coroutine

    result: T = uvloop.run(limited())
    return result


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, f"never happened: {what or condition}"
        time.sleep(0.01)


async def soon(condition: Callable[[], object], what: str = "") -> None:
    """As `eventually`, in an event loop."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, f"never happened: {what or condition}"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether that process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in b"ZX"
    except OSError:
        return False


def plan_of(
    *processes: Process,
    run_dir: str = "/nonexistent",
    start_s: float = LIMIT_S,
    pause_s: float = 0.0,
    drain_s: dict[str, float] | None = None,
) -> Plan:
    return Plan(
        target="test",
        engine="none",
        simulated=True,
        model="none",
        run_dir=run_dir,
        discovery_dir=f"{run_dir}/discovery",
        http_host="127.0.0.1",
        http_port=0,
        admin_host="127.0.0.1",
        admin_port=0,
        processes=processes,
        deadlines=Deadlines(start_s=start_s, pause_s=pause_s, drain_s=drain_s or {}, grace_s=60.0),
    )


def process(
    name: str, program: str = "import time; time.sleep(1000)", *args: str | int, **more: Any
) -> Process:
    """A process of the plan that runs a small Python program; its role is the first part of its name."""
    values: dict[str, Any] = {
        "role": Role(name.partition("-")[0]),
        "argv": python(program, *args),
        "env": {},
        "stop": Stop(leader_s=LIMIT_S),
    }
    return Process(name=name, **(values | more))


QUICK = Watch(interval_s=0.05, loading_s=0.02, timeout_s=0.5, failures=3, stopped_s=0.1, scan_s=0.1)


@dataclass
class Bench:
    """A pump whose stdout is a file, and supervisors around it."""

    path: Path
    pump: LogPump
    events: list[Event] = field(default_factory=list)
    respawned: list[int] = field(default_factory=list)

    def supervisor(
        self,
        plan: Plan,
        *,
        policy: RestartPolicy | None = None,
        watch: Watch = QUICK,
        on_death: Callable[[Process, int], Awaitable[None] | None] = lambda process, incarnation: None,
        head_start_s: float = 0.0,
        **hooks: Any,
    ) -> Supervisor:
        return Supervisor(
            plan,
            self.pump,
            hooks=Hooks(on_event=self.events.append, on_death=on_death, **hooks),
            policy=policy or RestartPolicy(first_s=0.01, max_s=0.05),
            watch=watch,
            head_start_s=head_start_s,
        )

    def seen(self, kind: Kind, name: str = "", count: int = 1) -> bool:
        return len(self.of(kind, name)) >= count

    def of(self, kind: Kind, name: str = "") -> list[Event]:
        return [event for event in self.events if event.kind is kind and name in ("", event.process)]

    def output(self) -> str:
        self.pump.writer.flush(LIMIT_S)
        return self.path.read_text()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "stdout"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    pump = LogPump(writer=LogWriter(fd))
    yield Bench(path, pump)
    pump.close()
    os.close(fd)


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    """Orphans of the tests' processes come to the test process, as they come to the launcher."""
    linux.become_subreaper()
    yield
    linux.become_subreaper(False)


def server(name: str, **more: object) -> Process:
    """A process with a health page."""
    port = free_port()
    return process(
        name, HTTP, port, health=Http("127.0.0.1", port, "/health"), ports={"system": port}, **more
    )


def supervised(
    bench: Bench, plan: Plan, check: Callable[[Supervisor], Awaitable[None]], **more: object
) -> tuple[Exit, Supervisor]:
    """Run the plan, `check` beside it, then stop it, and have its exit code."""

    async def both() -> tuple[Exit, Supervisor]:
        supervisor = bench.supervisor(plan, **more)  # type: ignore[arg-type]
        running = asyncio.create_task(supervisor.run())
        try:
            await check(supervisor)
        except BaseException:
            supervisor.kill()
            raise
        finally:
            supervisor.stop()
            code = await running
        return code, supervisor

    return run(both())
