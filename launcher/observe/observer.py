"""Everything that watches one deployment, in one place: history, incidents, metrics, and what /status adds."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from launcher.observe.capacity import capacity
from launcher.observe.errors import WINDOW_S, client_errors, errors
from launcher.observe.figures import Figures
from launcher.observe.gpus import GpuMemory
from launcher.observe.history import History
from launcher.observe.incident.store import Store, folder
from launcher.observe.incident.tracker import Incidents
from launcher.observe.secrets import Masker
from launcher.plan.model import Plan
from launcher.supervise.events import Event, ProcessState
from launcher.supervise.logpump import LogPump

if TYPE_CHECKING:
    from launcher.observe.metrics import Facts, OwnMetrics
    from launcher.observe.scrape import Scrape, Scraper

EVENTS = 20
"""Newest events and incidents that /status lists."""


REFRESH_S = 2.0
"""Age of the figures from which a look at /status has them made anew."""


class Registrations(Protocol):
    """What the keeper of the discovery counts."""

    restored: int
    withdrawn: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where the observer looks. `failure`: why the deployment as a whole failed, if it did."""

    plan: Plan
    pump: LogPump
    snapshot: Callable[[], Sequence[ProcessState]]
    reasons: Callable[[], list[str]]
    """Why the deployment is not ready; empty where it is."""
    ready_s: Callable[[], float | None]
    """Seconds from the start to the first time ready."""
    registrations: Registrations
    failure: Callable[[], str | None]
    host: str
    """Where the frontend is reached."""
    log_dir: Path | None = None


class Observer:
    """Make it and use it in the event loop's thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        plan, pump = source.plan, source.pump
        self.started_wall = time.time()
        self.masker = Masker([os.environ, *(process.env for process in plan.processes)])
        self.history = History()
        self._incidents = Store(folder(plan.run_dir, source.log_dir))
        self.incidents = Incidents(
            plan,
            self.history,
            self._incidents,
            self.masker,
            snapshot=source.snapshot,
            records=pump.last_records,
            failure=source.failure,
            log=pump.log,
        )
        self.gpus = GpuMemory()
        self.figures = Figures()
        self._plan_page: dict[str, Any] = self.masker.value(plan.to_json())
        self._phases = {process.name: [phase.name for phase in process.phases] for process in plan.processes}
        self._refreshing: asyncio.Task[None] | None = None

    # aiohttp and prometheus_client: not before the children run, and not for a run that nobody looks at.

    @functools.cached_property
    def _scraper(self) -> Scraper:
        from launcher.observe.scrape import Scraper, targets

        source = self._source
        return Scraper(lambda: targets(source.plan, source.snapshot(), source.host))

    @functools.cached_property
    def _own(self) -> OwnMetrics:
        from launcher.observe.metrics import OwnMetrics

        return OwnMetrics(self._facts)

    def event(self, event: Event) -> None:
        """Something happened."""
        self.history.add(event)
        self.incidents.see(event)

    async def close(self) -> None:
        """The run is over: write what is still to be written."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self.incidents.close()
        await self._scraper.close()

    async def metrics(self) -> str:
        """The page /metrics: the launcher's own, then those of all children."""
        scrape = await self._look()
        return self._own.text() + scrape.merged.text

    def status(self, page: Mapping[str, Any]) -> dict[str, Any]:
        """The page /status: `page` and what is known here, without secrets. Quick: figures may be a call old."""
        self.refresh()
        source, now = self._source, time.monotonic()
        states = source.snapshot()
        roles = capacity(source.plan, states)
        drain = self.history.drain
        whole = {
            **page,
            "processes": [
                state.to_json() | {"planned_phases": self._phases.get(state.name, [])} for state in states
            ],
            "degraded": any(role.ready < role.planned for role in roles.values()),
            "capacity": {name: role.to_json() for name, role in roles.items()},
            "drain": {"draining": drain.began is not None, "seconds": round(drain.seconds(now), 3)},
            "restarts": sum(state.restarts for state in states),
            "serving": self.figures.to_json(),
            "workers": self.figures.workers,
            "gpus": [gpu.to_json() for gpu in self.gpus.last],
            "logs": {"lines": source.pump.lines, "dropped": source.pump.writer.dropped},
            "incidents": self.incidents.newest(EVENTS),
            "earlier_incidents": {"count": self.incidents.earlier, "folder": str(self._incidents.folder)},
            "errors": errors(source.pump.last_records, states),
            "client_errors": {"count": client_errors(source.pump.last_records, states), "window_s": WINDOW_S},
            "faults": [
                event.to_json() | {"text": str(event)} for event in list(self.history.faults)[-EVENTS:]
            ],
            "events": [event.to_json() for event in list(self.history.events)[-EVENTS:]],
        }
        masked: dict[str, Any] = self.masker.value(whole)
        return masked | {"plan": self._plan_page}

    def refresh(self) -> None:
        """Look at the children and the GPUs in the background, unless that is under way."""
        last = self._scraper.last
        if last is not None and time.monotonic() - last.at < REFRESH_S:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="figures")

    async def _refresh(self) -> None:
        # Figures are an extra: nothing that goes wrong here may reach the deployment.
        with contextlib.suppress(Exception):
            await asyncio.gather(self._look(), self.gpus.refresh())

    async def _look(self) -> Scrape:
        scrape = await self._scraper.scrape()
        self.figures.add(scrape)
        return scrape

    def _facts(self) -> Facts:
        from launcher.observe.metrics import Facts

        source = self._source
        states = source.snapshot()
        return Facts(
            plan=source.plan,
            states=states,
            capacity=capacity(source.plan, states),
            ready=not source.reasons(),
            started_wall=self.started_wall,
            ready_s=source.ready_s(),
            history=self.history,
            restored=source.registrations.restored,
            withdrawn=source.registrations.withdrawn,
            lines=source.pump.lines,
            dropped=source.pump.writer.dropped,
            incidents=self.incidents.count,
            gpus=self.gpus.last,
            scrape=self._scraper.last,
        )
