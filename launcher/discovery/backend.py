"""What a launcher asks of discovery, whichever it is: file (this machine), etcd, kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from launcher.discovery.cards import Card
from launcher.discovery.file import FileDiscovery
from launcher.discovery.nodes import Remote
from launcher.plan.model import Plan
from launcher.supervise.events import ProcessState

if TYPE_CHECKING:
    from launcher.supervise.logpump import LogPump


class Discovery(Protocol):
    """Keeps the registrations of this node's processes true, and knows those of other nodes."""

    restored: int
    """Entries written back since the start."""
    withdrawn: int
    """Entries of dead processes removed since the start."""

    def joined(self, name: str, ports: Iterable[int]) -> None:
        """A process has started and takes requests on these ports."""

    def leaving(self, name: str) -> None:
        """A process was told to stop: what it removes now stays removed."""

    def withdraw(self, name: str) -> Awaitable[None] | None:
        """A process is dead: take it out of routing at once, or as soon as what is returned has been awaited."""

    def stand_aside(self, name: str) -> bool:
        """A process stands still: take it out of routing until `stand_back`, or False where that cannot be undone."""

    def stand_back(self, name: str) -> None:
        """A process goes on: back into routing."""

    async def run(self) -> None:
        """Keep until cancelled, then leave."""

    async def reachable(self) -> None:
        """Wait until a process that starts now could register."""

    def owners(self) -> Mapping[int, str]:
        """This node's processes by the ids that they registered with."""

    def cards(self) -> Mapping[int, Card]:
        """What each registered worker told the router, by its id there."""

    def remote(self) -> Mapping[tuple[str, int], Remote]:
        """The workers of other nodes, by the address and port where they take requests."""

    def unregistered(self, states: Sequence[ProcessState]) -> list[str]:
        """Those of this node's workers that no frontend can find; empty where discovery cannot say."""

    def page(self) -> dict[str, Any]:
        """What `/status` shows of it."""


class NoKeeper:
    """Kubernetes: Dynamo's processes register themselves as objects of the cluster, which removes them with the pod."""

    def __init__(self, plan: Plan) -> None:
        self.restored = self.withdrawn = 0
        self._plan = plan

    def joined(self, name: str, ports: Iterable[int]) -> None:
        """Nothing to do."""

    def leaving(self, name: str) -> None:
        """Nothing to do."""

    def withdraw(self, name: str) -> None:
        """Nothing to do: the metadata of a pod are of its processes, and a restarted one replaces them."""

    def stand_aside(self, name: str) -> bool:
        """Its registration is its own."""
        return False

    def stand_back(self, name: str) -> None:
        """Nothing to do."""

    async def run(self) -> None:
        """Wait to be cancelled."""
        await asyncio.Event().wait()

    async def reachable(self) -> None:
        """The API server is a check's matter."""

    def owners(self) -> dict[int, str]:
        return {}

    def cards(self) -> dict[int, Card]:
        return {}

    def remote(self) -> Mapping[tuple[str, int], Remote]:
        """The workers of other nodes: nothing here knows them."""
        return {}

    def unregistered(self, states: Sequence[ProcessState]) -> list[str]:
        return []

    def page(self) -> dict[str, Any]:
        return {
            "backend": "kubernetes",
            "namespace": self._plan.join.namespace,
            "restored": 0,
            "withdrawn": 0,
        }


def make(
    plan: Plan,
    snapshot: Callable[[], Sequence[ProcessState]],
    listeners: Callable[[], Mapping[int, str]],
    pump: LogPump,
    reasons: Callable[[], list[str]],
    environ: Mapping[str, str],
) -> Discovery:
    """The discovery of a plan. `listeners`: which process listens on which TCP port now."""
    if plan.join.backend == "etcd":
        from launcher.discovery.cluster import EtcdDiscovery

        return EtcdDiscovery(plan, snapshot, pump.log, reasons, environ)
    if plan.join.backend == "kubernetes":
        return NoKeeper(plan)

    def well(name: str) -> bool:
        return any(state.name == name and state.healthy for state in snapshot())

    return FileDiscovery(Path(plan.discovery_dir), listeners, pump.log, well)
