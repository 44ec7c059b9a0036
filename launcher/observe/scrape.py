"""Fetches every child's /metrics: all at once, each within a second, and no more often than is useful."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from launcher.observe.exposition import Merged, NotMetrics, Page, merge, parse
from launcher.plan.model import Plan, Role
from launcher.supervise.events import ProcessState

TIMEOUT_S = 1.0
"""For one child's whole page. Prometheus waits 10 s by default: a child that hangs must not cost the others theirs."""
FRESH_S = 1.0
"""A page younger than this is not fetched again."""
MAX_BYTES = 4 << 20
"""Of one child's page; a frontend's with eight workers has 0.2 MB."""


@dataclass(frozen=True, slots=True)
class Target:
    """One child to ask."""

    worker: str
    role: str
    gpu: str
    """The GPUs it computes on, joined by commas; empty without."""
    url: str

    @property
    def labels(self) -> dict[str, str]:
        """The labels under which everything of this child appears."""
        return {"worker": self.worker, "role": self.role, "gpu": self.gpu}


@dataclass(frozen=True, slots=True)
class Result:
    """What came of asking one child."""

    target: Target
    seconds: float
    page: Page | None
    error: str = ""
    """Why there is no page."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """What came of asking all of them."""

    results: tuple[Result, ...]
    merged: Merged
    at: float
    """Monotonic seconds."""

    def page(self, worker: str) -> Page | None:
        """The page of one child, if it gave one."""
        return next((result.page for result in self.results if result.target.worker == worker), None)


def targets(plan: Plan, states: Sequence[ProcessState], host: str) -> list[Target]:
    """The running children that have a page: workers on their system port, the frontend on its API's.

    `host`: where the frontend is reached; the workers' own planes are on the plan's address.
    """
    gpus = {process.name: ",".join(process.gpus) for process in plan.processes}
    found = []
    for state in states:
        frontend = state.role is Role.FRONTEND
        port = state.ports.get("http" if frontend else "system")
        if port is not None and state.pid is not None:
            url = f"http://{host if frontend else plan.join.host}:{port}/metrics"
            found.append(Target(state.name, state.role.value, gpus.get(state.name, ""), url))
    return found


class Scraper:
    """Scrapes on request. Make it, use it and close it in one event loop."""

    def __init__(
        self,
        targets: Callable[[], Sequence[Target]],
        *,
        timeout_s: float = TIMEOUT_S,
        fresh_s: float = FRESH_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.last: Scrape | None = None
        self._targets = targets
        self._timeout_s, self._fresh_s, self._max_bytes = timeout_s, fresh_s, max_bytes
        self._one = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    async def scrape(self) -> Scrape:
        """What every child says, at most a second old. Never raises for what a child does."""
        async with self._one:
            if self.last is not None and time.monotonic() - self.last.at < self._fresh_s:
                return self.last
            fetched = await asyncio.gather(*(self._fetch(target) for target in self._targets()))
            # In a thread: the event loop also watches for deaths.
            self.last = await asyncio.to_thread(_read, fetched)
            return self.last

    async def close(self) -> None:
        """Give up the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _fetch(self, target: Target) -> tuple[Target, float, bytes, str]:
        began = time.monotonic()
        body, error = b"", ""
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._get(target.url)
        except TimeoutError:
            error = f"no page within {self._timeout_s:g} s"
        except ValueError as fault:
            error = str(fault)
        except (aiohttp.ClientError, OSError) as fault:
            error = f"{type(fault).__name__}: {fault}"
        return target, time.monotonic() - began, body, error

    async def _get(self, url: str) -> bytes:
        if self._session is None:
            # A connection each: one kept open would hold up the drain of the child. Compressed, a small body could
            # hide a huge page.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=0),
                headers={"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"},
                trust_env=False,
                auto_decompress=False,
            )
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"HTTP {response.status}")
            parts: list[bytes] = []
            size = 0
            async for part in response.content.iter_any():
                size += len(part)
                if size > self._max_bytes:
                    raise ValueError(f"more than {self._max_bytes} bytes")
                parts.append(part)
        return b"".join(parts)


def _read(fetched: Sequence[tuple[Target, float, bytes, str]]) -> Scrape:
    results = []
    pages: list[tuple[Mapping[str, str], Page]] = []
    for target, seconds, body, fault in fetched:
        page, error = None, fault
        if not error:
            try:
                page = parse(body.decode())
            except UnicodeDecodeError:
                error = "not a metrics page, it is no text"
            except NotMetrics as nonsense:
                error = str(nonsense)
        results.append(Result(target, seconds, page, error))
        # Kept in place, so that an index of `Merged.dropped` is one of the results.
        pages.append((target.labels, page or Page({}, 0, 0)))
    return Scrape(tuple(results), merge(pages), time.monotonic())
