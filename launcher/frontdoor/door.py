"""Who takes new connections: the frontend itself, or after its death whichever serves, through the launcher."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launcher.frontdoor.forward import Address, Forwarder
from launcher.frontdoor.keep import listening_socket
from launcher.frontdoor.names import PRIVATE, SPARE
from launcher.plan.model import Plan, Process, Role
from launcher.supervise import procfs
from launcher.supervise.events import Event, Kind, ProcessState

if TYPE_CHECKING:
    # For types alone: it brings aiohttp, and a quarter of a second before the first child.
    from launcher.prove.frontend import Frontend

HOLD_S = 30.0
"""How long a connection waits for a frontend that serves before it is cut."""
LOOK_S = 0.1
LOOPBACK = "127.0.0.1"


class FrontDoor:
    """Call `event` with every event, from the event loop's thread, and `lost` first thing when a process dies."""

    def __init__(
        self, plan: Plan, snapshot: Callable[[], Sequence[ProcessState]], log: Callable[[str, str], None]
    ) -> None:
        self._plan = plan
        self._snapshot = snapshot
        self._log = log
        self._names = [
            process.name for process in plan.processes if process.name in (Role.FRONTEND.value, SPARE)
        ]
        self._kept: socket.socket | None = None
        self._forwarder: Forwarder | None = None
        self._ask: Callable[[str], Frontend] | None = None
        self._ending = False
        self._choosing: asyncio.Task[Address | None] | None = None
        self._good: dict[int, float] = {}
        self.active = Role.FRONTEND.value
        """The frontend that new requests go to."""

    @property
    def forwarding(self) -> bool:
        """Whether connections pass through the launcher."""
        return self._forwarder is not None

    def use(self, ask: Callable[[str], Frontend]) -> None:
        """What makes a client of the frontend at a URL."""
        self._ask = ask

    def marked(self, process: Process) -> Process:
        """The process as it is to be planned again: behind the door a frontend needs a port of its own."""
        if process.name not in self._names or not self.forwarding:
            return process
        return dataclasses.replace(process, ports={**process.ports, "http": PRIVATE})

    def event(self, event: Event) -> None:
        """Something happened."""
        if event.kind is Kind.DRAINING and event.process == self.active:
            # Told to end: whoever connects from now on is refused, not left waiting.
            self._ending = True
            self.close()
        elif event.kind is Kind.HEALTHY and event.process == Role.FRONTEND.value and not self.forwarding:
            self._keep()

    def _keep(self) -> None:
        state = self._state(Role.FRONTEND.value)
        if state.pid is None:
            return
        self._ending = False
        try:
            self._kept = listening_socket(state.pid, self._plan.http_port)
        except OSError as error:
            # Allowed by every kernel that we know and forbidden by some seccomp profiles.
            self._log(
                f"new requests will be refused while the frontend restarts: its socket cannot be kept open ({error})",
                "warning",
            )

    def lost(self, name: str) -> None:
        """A process is dead: from now on its connections are ours."""
        if name != self.active or self._ending:
            return
        if self._kept is not None:
            self._forwarder = Forwarder(self._kept, self._where, self._doubt)
            self._kept = None
            self._forwarder.start()
            self._log(
                "new connections wait for a frontend, and pass through the launcher from now on", "warning"
            )
        others = [other for other in self._names if other != name and self._state(other).healthy]
        self.active = others[0] if others else self.active

    def _doubt(self, address: Address) -> None:
        """A frontend cut or refused a connection: ask it again before the next one goes there."""
        self._good.pop(address[1], None)

    async def _where(self) -> Address | None:
        # All that wait share one search.
        if self._choosing is None or self._choosing.done():
            self._choosing = asyncio.create_task(self._choose())
        return await asyncio.shield(self._choosing)

    async def _choose(self) -> Address | None:
        until = time.monotonic() + HOLD_S
        while time.monotonic() < until and not self._ending:
            for name in sorted(self._names, key=lambda name: name != self.active):
                state = self._state(name)
                port = state.ports["http"]
                if state.healthy and _lives(state) and await self._routes(port):
                    if name != self.active:
                        self.active = name
                    return LOOPBACK, port
            await asyncio.sleep(LOOK_S)
        return None

    async def _routes(self, port: int) -> bool:
        """Whether the frontend behind that port routes the model; known good ones are not asked again soon."""
        if port in self._good and time.monotonic() - self._good[port] < 1.0:
            return True
        if self._ask is None:
            return True
        answer = await self._ask(f"http://{LOOPBACK}:{port}").model_page(2.0)
        if answer.ok and isinstance(answer.body, dict) and answer.body.get("ready") is True:
            self._good[port] = time.monotonic()
            return True
        return False

    def _state(self, name: str) -> ProcessState:
        return next(state for state in self._snapshot() if state.name == name)

    def close(self) -> None:
        """Take no connection any more; those that are passed on go on."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        if self._forwarder is not None:
            self._forwarder.stop()


def _lives(state: ProcessState) -> bool:
    """Asked anew for each connection: a frontend that is killed cuts its streams, whose clients come again at once,
    and still listens for up to 50 ms, while its end is not known yet."""
    return state.pid is not None and not procfs.dying(state.pid)
