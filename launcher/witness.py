"""Who asks a started deployment from outside: a client of its API, the proofs, readiness, and the admin server.

All of it brings aiohttp and prometheus_client, which take longer to import than the rest of a start. So nothing
imports this module before the first child runs.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

import aiohttp

from launcher.observe import metrics, scrape  # noqa: F401  (needed at the first look at /metrics, too late to load)
from launcher.observe.admin import Admin, Pages
from launcher.plan.model import Plan
from launcher.prove.claimed import Claimed
from launcher.prove.evidence import Evidence
from launcher.prove.frontend import Frontend
from launcher.prove.prover import Prover
from launcher.prove.readiness import Readiness
from launcher.supervise.events import ProcessState
from launcher.supervise.logpump import LogPump


class Watched(Protocol):
    """What the witness needs of the deployment."""

    @property
    def plan(self) -> Plan: ...

    @property
    def url(self) -> str: ...

    @property
    def evidence(self) -> Evidence: ...

    def snapshot(self) -> Sequence[ProcessState]: ...

    def fail(self, reason: str) -> None: ...

    def unregistered(self, states: Sequence[ProcessState]) -> list[str]: ...

    def active_frontend(self) -> str: ...

    def reasons(self) -> list[str]: ...

    def was_ready(self) -> bool: ...

    def status(self) -> dict[str, Any]: ...

    def metrics(self) -> Awaitable[str]: ...


class Witness:
    """Make it, `serve` and `close` it in one event loop."""

    def __init__(self, watched: Watched, pump: LogPump) -> None:
        plan = watched.plan
        self._watched = watched
        self._log = pump.log
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True), trust_env=False
        )
        self.frontend = self.client(watched.url)
        claimed = Claimed(plan, self.frontend, watched.snapshot, watched.evidence)
        self.prover = Prover(claimed, watched.snapshot, pump.log, fail=watched.fail)
        self.readiness = Readiness(
            plan,
            self.frontend,
            self.prover,
            watched.snapshot,
            pump.log,
            watched.unregistered,
            watched.active_frontend,
        )
        self._admin = Admin(
            Pages(watched.reasons, watched.was_ready, watched.status, watched.metrics, self._page_failed)
        )

    def client(self, url: str) -> Frontend:
        """A client of the frontend at a URL."""
        return Frontend(self._session, url, self._watched.plan.model)

    async def serve(self, listeners: Sequence[socket.socket]) -> None:
        """Answer on the admin server's sockets, which are closed with it."""
        await self._admin.start(listeners)

    async def close(self) -> None:
        """Ask and answer no more."""
        await self._admin.close()
        await self._session.close()

    def _page_failed(self, text: str) -> None:
        self._log(text, "error")
