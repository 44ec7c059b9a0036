"""The keeper of a part that joins others by etcd: registrations, the other nodes, and their events.

Every Dynamo process holds one lease there, whose id is its instance's id; all its keys live by it
(`v1/instances/NAMESPACE/COMPONENT/ENDPOINT/ID`, `v1/mdc/...`, `v1/event_sources/...`; 1.3.1 to 1.6.1). So a dead worker
is taken out of every frontend's routing by revoking its lease, which the launcher does the moment it dies. Where the
whole node is killed, the other launchers do (see `orphans`); where it falls silent, nobody does, and its leases expire.
This launcher's own key (see `nodes`) expires with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.discovery import nodes, orphans
from launcher.discovery.cards import Card, card
from launcher.discovery.etcd import Etcd, EtcdError, Pair
from launcher.engines import events
from launcher.plan.model import WORKER_ROLES, Plan
from launcher.supervise.events import ProcessState
from launcher.supervise.logs import Log

LOOK_S = 1.0
"""Between looks at etcd."""
LEAVE_S = 2.0
"""For taking back what this launcher told the others, at its end."""


class EtcdDiscovery:
    """Make it and use it in one event loop."""

    def __init__(
        self,
        plan: Plan,
        snapshot: Callable[[], Sequence[ProcessState]],
        log: Log,
        reasons: Callable[[], list[str]],
        environ: Mapping[str, str],
    ) -> None:
        """`reasons`: why this part is not ready. `environ`: credentials and certificates."""
        self.restored = self.withdrawn = 0
        self._plan, self._join = plan, plan.join
        self._snapshot, self._log, self._reasons = snapshot, log, reasons
        self._etcd = Etcd(plan.join.endpoints, environ)
        self._key = nodes.folder(plan.join.namespace) + secrets.token_hex(6)
        self._peers = Path(events.peers_file(plan.run_dir))
        self._lease = 0
        self._told = b""
        self._ports: dict[int, str] = {}
        self._local: dict[int, set[int]] = {}
        """Port of this node to the leases (and ids) of the instances there."""
        self._distant: dict[orphans.Where, set[int]] = {}
        """The same of other nodes, by address and port."""
        self._components: dict[str, set[int]] = {}
        self._cards: dict[int, Card] = {}
        self.nodes: dict[str, nodes.Node] = {}
        """The other parts, by their run."""
        self.error = ""
        """Why etcd cannot be asked now; empty where it can."""
        self._answered_at = time.monotonic()
        self._unlike: list[str] = []

    # -- this node's processes

    def joined(self, name: str, ports: Iterable[int]) -> None:
        """A process has started and takes requests on these ports."""
        for port in ports:
            self._ports[port] = name

    def leaving(self, name: str) -> None:
        """Its own to unregister: it does so at once, and finishes what it has."""

    async def withdraw(self, name: str) -> None:
        """A process is dead: revoke its leases. Where etcd is away they expire."""
        ports = [port for port, owner in self._ports.items() if owner == name]
        for port in ports:
            del self._ports[port]
        began, gone = time.monotonic(), 0
        known = {lease for port in ports for lease in self._local.get(port, ())}
        try:
            # Every millisecond counts: earlier releases spend a request's few migrations on the dead.
            for lease in known:
                gone += await self._etcd.revoke(lease)
            # It may have registered since the last look.
            self._see_instances(await self._etcd.range(f"v1/instances/{self._join.namespace}/"))
            for lease in {lease for port in ports for lease in self._local.get(port, ())} - known:
                gone += await self._etcd.revoke(lease)
        except EtcdError as error:
            self._log(f"cannot withdraw {name}, it leaves routing when its lease expires: {error}", "warning")
            return
        if gone:
            self.withdrawn += gone
            spent = (time.monotonic() - began) * 1000
            self._log(f"withdrew {name} from etcd in {spent:.1f} ms")

    def stand_aside(self, name: str) -> bool:
        """Not possible: without its lease a process of Dynamo ends."""
        return False

    def stand_back(self, name: str) -> None:
        """Nothing to do."""

    def owners(self) -> dict[int, str]:
        """This node's processes by the ids that they registered with."""
        return {
            number: self._ports[port]
            for port, numbers in self._local.items()
            if port in self._ports
            for number in numbers
        }

    def cards(self) -> dict[int, Card]:
        """What each registered worker of any node told the router, by its id there."""
        return dict(self._cards)

    def remote(self) -> dict[tuple[str, int], nodes.Remote]:
        """The workers of the other nodes, by the address and port where they take requests."""
        return {where: worker for node in self.nodes.values() for where, worker in node.workers().items()}

    def unregistered(self, states: Sequence[ProcessState]) -> list[str]:
        """Those of this node's workers that no frontend can find."""
        return [
            state.name
            for state in states
            if state.role in WORKER_ROLES and not self._local.get(state.ports.get("rpc", 0))
        ]

    # -- the keeper

    async def run(self) -> None:
        """Look again and again until cancelled, then tell the others that this part is gone."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(LOOK_S)
        finally:
            with contextlib.suppress(EtcdError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(LEAVE_S):
                    if self._lease:
                        await self._etcd.revoke(self._lease)
            await self._etcd.close()

    async def reachable(self) -> None:
        """Wait until etcd answers: a process that starts before would only die."""
        while True:
            try:
                await self._etcd.range(nodes.folder(self._join.namespace))
                return
            except EtcdError:
                await asyncio.sleep(LOOK_S / 2)

    async def _look(self) -> None:
        namespace = self._join.namespace
        try:
            await self._tell()
            self._see_instances(await self._etcd.range(f"v1/instances/{namespace}/"))
            self._see_cards(await self._etcd.range(f"v1/mdc/{namespace}/"))
            self._see_nodes(await self._etcd.range(nodes.folder(namespace)))
            await self._bury()
        except EtcdError as error:
            if not self.error:
                self._log(
                    f"etcd does not answer; what runs goes on for {self._join.lease_s} s: {error}", "warning"
                )
            self.error = str(error)
            return
        now = time.monotonic()
        if self.error:
            self._log(f"etcd answers again after {now - self._answered_at:.1f} s")
            self.error = ""
        self._answered_at = now

    async def _tell(self) -> None:
        """Keep this launcher's own key, and write it where it has changed."""
        if self._lease and not await self._etcd.keep_alive(self._lease):
            self._lease = 0
        if not self._lease:
            self._lease, self._told = await self._etcd.grant(self._join.lease_s), b""
        text = nodes.describe(self._plan, self._snapshot(), self._reasons())
        if text != self._told:
            await self._etcd.put(self._key, text, self._lease)
            self._told = text

    async def _bury(self) -> None:
        """Withdraw the workers of nodes that were killed, launcher and all."""
        others = self.nodes.values()
        for name, count in (
            await orphans.revoke(self._etcd, others, self._distant, self._join.lease_s)
        ).items():
            self.withdrawn += count
            self._log(f"withdrew {count} workers of node {name}: it and its launcher are gone", "warning")

    def _see_instances(self, pairs: Sequence[Pair]) -> None:
        self._local, self._distant, self._components = {}, {}, {}
        for pair in pairs:
            body = pair.json()
            number = body.get("instance_id")
            if body.get("endpoint") != "generate" or not isinstance(number, int):
                continue
            self._components.setdefault(str(body.get("component")), set()).add(number)
            transport = body.get("transport")
            address = transport.get("tcp") if isinstance(transport, dict) else ""
            host, _, port = str(address).partition("/")[0].rpartition(":")
            if not port.isdecimal():
                continue
            if host == self._join.host:
                self._local.setdefault(int(port), set()).add(pair.lease or number)
            elif pair.lease:
                self._distant.setdefault((host, int(port)), set()).add(pair.lease)

    def _see_cards(self, pairs: Sequence[Pair]) -> None:
        bodies = [pair.json() for pair in pairs]
        self._cards = {
            body["instance_id"]: card(body.get("card_json"))
            for body in bodies
            if isinstance(body.get("instance_id"), int)
        }

    def _see_nodes(self, pairs: Sequence[Pair]) -> None:
        found = [nodes.read(pair.key, pair.json(), pair.lease) for pair in pairs if pair.key != self._key]
        now = {node.run: node for node in found if node is not None}
        for run in now.keys() - self.nodes.keys():
            node = now[run]
            self._log(
                f"node {node.name} at {node.address} has joined: {', '.join(node.body.get('roles') or ())}"
            )
        for run in self.nodes.keys() - now.keys():
            self._log(f"node {self.nodes[run].name} at {self.nodes[run].address} is gone")
        unlike = nodes.differences(self._plan, now.values())
        for text in unlike:
            if text not in self._unlike:
                self._log(
                    f"{text}: it is of another deployment, give one of them another --dynamo-namespace",
                    "error",
                )
        self.nodes, self._unlike = now, unlike
        text = "".join(f"{node.events}\n" for node in now.values() if node.events)
        if not self._peers.exists() or self._peers.read_text() != text:
            # In one step: the broker must never read half a list.
            fresh = self._peers.with_suffix(".new")
            fresh.write_text(text)
            fresh.rename(self._peers)

    # -- what /status shows

    def page(self) -> dict[str, Any]:
        """This part's place, the other parts, and how many workers discovery has of each component."""
        return {
            "backend": "etcd",
            "namespace": self._join.namespace,
            "node": self._join.node,
            "address": self._join.host,
            "reachable": not self.error,
            "error": self.error,
            "restored": self.restored,
            "withdrawn": self.withdrawn,
            "instances": {name: len(numbers) for name, numbers in sorted(self._components.items())},
            "nodes": [
                node.page() for node in sorted(self.nodes.values(), key=lambda node: (node.name, node.run))
            ],
            "unlike": list(self._unlike),
        }
