"""What each launcher tells the others about its part: one leased key in etcd, beside Dynamo's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.plan.model import WORKER_ROLES, Plan, Role
from launcher.supervise.events import ProcessState

PREFIX = "gpt-oss-launcher"


def folder(namespace: str) -> str:
    """Where the nodes of a namespace are."""
    return f"{PREFIX}/{namespace}/nodes/"


@dataclass(frozen=True, slots=True)
class Remote:
    """A worker of another node."""

    name: str
    """With its node's: `node-b/decode-0`."""
    role: str
    metrics: str
    """Root of its status server's URL."""


@dataclass(frozen=True, slots=True)
class Node:
    """One part of the deployment, as its launcher tells of it."""

    run: str
    """Unique to the launcher's run."""
    name: str
    address: str
    body: dict[str, Any]
    lease: int = 0
    """That its key lives by, which its launcher renews."""

    @property
    def events(self) -> str:
        """ZMQ address of its events; empty where it has none."""
        port = self.body.get("events")
        return f"tcp://{self.address}:{port}" if isinstance(port, int) else ""

    @property
    def url(self) -> str:
        """Of its API; empty where it has no frontend."""
        return str(self.body.get("url") or "")

    def workers(self) -> dict[tuple[str, int], Remote]:
        """Its workers, by the address and port where they take requests."""
        return {
            (self.address, each["rpc"]): Remote(
                f"{self.name}/{each.get('name')}",
                str(each.get("role")),
                f"http://{self.address}:{each.get('system')}",
            )
            for each in self.body.get("processes") or ()
            if isinstance(each, dict) and isinstance(each.get("rpc"), int)
        }

    def processes(self) -> set[str]:
        """The names of its processes of Dynamo."""
        return {
            str(each.get("name"))
            for each in self.body.get("processes") or ()
            if isinstance(each, dict) and each.get("role") != Role.HELPER
        }

    def page(self) -> dict[str, Any]:
        """As `/status` shows it; processes carry the node's name, so that they are unique over all nodes."""
        processes = [
            {**each, "name": f"{self.name}/{each.get('name')}"}
            for each in self.body.get("processes") or ()
            if isinstance(each, dict)
        ]
        shown = {key: self.body.get(key) for key in ("target", "roles", "ready", "reasons", "url", "admin")}
        return {"node": self.name, "address": self.address, **shown, "processes": processes}


def read(key: str, body: dict[str, Any], lease: int = 0) -> Node | None:
    """A node from its key; None where another program wrote it."""
    name, address = body.get("node"), body.get("address")
    if not isinstance(name, str) or not isinstance(address, str):
        return None
    return Node(key.rpartition("/")[2], name, address, body, lease)


def describe(plan: Plan, states: Sequence[ProcessState], reasons: Sequence[str]) -> bytes:
    """What this launcher tells."""
    join = plan.join
    roles = sorted({state.role.value for state in states if state.role in (*WORKER_ROLES, "frontend")})
    ports = {state.name: state.ports for state in states}
    host = plan.http_host if plan.http_host not in ("0.0.0.0", "::", "") else join.host
    body = {
        "node": join.node,
        "address": join.host,
        "events": ports.get("events", {}).get("events"),
        "roles": roles,
        "target": plan.target,
        **claims(plan),
        "ready": not reasons,
        "reasons": list(reasons)[:4],
        "url": f"http://{host}:{plan.http_port}" if "frontend" in roles else None,
        "admin": f"http://{plan.admin_host}:{plan.admin_port}",
        "processes": [
            {
                "name": state.name,
                "role": state.role.value,
                "state": state.state.value,
                "rpc": state.ports.get("rpc"),
                "system": state.ports.get("system"),
            }
            for state in states
        ],
    }
    return json.dumps(body, separators=(",", ":")).encode()


def claims(plan: Plan) -> dict[str, Any]:
    """What all parts of one deployment must have in common."""
    return {
        "model": plan.model,
        "engine": plan.engine,
        "block_size": plan.claims.block_size,
        "disaggregated": plan.claims.disaggregated,
    }


def differences(plan: Plan, nodes: Iterable[Node]) -> list[str]:
    """Where another node is of another deployment: it would be joined all the same, and fail in silence."""
    found = []
    for node in nodes:
        words = unlike(plan, node)
        if node.name == plan.join.node and node.address != plan.join.host:
            words.append("the same name")
        if words:
            found.append(f"node {node.name} at {node.address} has {', '.join(words)}")
    return found


def unlike(plan: Plan, node: Node) -> list[str]:
    """What a node says of itself that is otherwise here."""
    return [
        f"{key} {node.body.get(key)!r} (here {value!r})"
        for key, value in claims(plan).items()
        if key in node.body and node.body[key] != value
    ]
