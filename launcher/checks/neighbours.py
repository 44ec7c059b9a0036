"""Past one node: who of the deployment is there already, and whether the others reach this node's answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from launcher.checks.base import Check
from launcher.checks.etcd import asked, closed
from launcher.checks.plan.wiring import BACKEND
from launcher.findings import Finding
from launcher.machine import Machine
from launcher.plan.join import source_address
from launcher.plan.model import Plan, Role
from launcher.target.resolve import Resolved

if TYPE_CHECKING:  # its HTTP client takes a while to import, and most runs have no etcd
    from launcher.discovery import nodes
    from launcher.discovery.etcd import Etcd

LIVING_S = 3.0
"""A launcher renews its lease every second: one that is not renewed in this time is of a launcher that is no more."""


def clash(resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Each node of a deployment has a name of its own, and all of them run the same one.

    Two of one name cannot be told apart in `/status`, metrics and incidents. A node with another model, engine or block
    size would be routed to all the same, and answer wrongly or not at all. Only launchers that live count: what one
    left behind that was killed goes with its lease, and does not keep its successor from starting.
    """
    if closed(resolved, plan, machine, environ):
        return
    import asyncio

    from launcher.discovery import nodes
    from launcher.discovery.etcd import EtcdError

    own = {process.name for process in plan.workers} | {
        process.name for process in plan.processes if process.role is Role.FRONTEND
    }

    async def ask(client: Etcd) -> list[tuple[nodes.Node, str]]:
        try:
            pairs = await client.range(nodes.folder(plan.join.namespace))
            found = []
            for pair in pairs:
                node = nodes.read(pair.key, pair.json())
                if node is None:
                    continue
                named = node.name == plan.join.node and (
                    node.address != plan.join.host or own & node.processes()
                )
                unlike = nodes.unlike(plan, node)
                if named or unlike:
                    found.append((node, pair.lease, "" if named else ", ".join(unlike)))
            first = [await client.time_to_live(lease) for _, lease, _ in found]
            if found:
                await asyncio.sleep(LIVING_S)
            return [
                (node, text)
                for (node, lease, text), before in zip(found, first, strict=True)
                if 0 < before <= await client.time_to_live(lease) + 1
            ]
        except EtcdError:
            return []  # `rights` has said so

    for node, text in asked(plan, environ, ask):
        if not text:
            yield Finding(
                code="node-taken",
                what=f"another launcher in {plan.join.namespace} is called {node.name} and lives, at {node.address}",
                where="--node",
                why="processes of the two could not be told apart in /status, metrics and logs",
                fix=f"stop it, or --node NAME, such as {plan.join.node}-2; another deployment: --dynamo-namespace",
            )
        else:
            yield Finding(
                code="node-unlike",
                what=f"node {node.name} at {node.address} of {plan.join.namespace} has {text}",
                where="--dynamo-namespace",
                why="it is of another deployment, and the routers of both would send requests to either",
                fix="the same target and settings on every node, or a --dynamo-namespace of its own",
            )


def answers(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Workers of other nodes connect to the frontend with their answers: it must listen where this node is reached.

    Dynamo before 1.5 takes a name of an interface for that (DYN_TCP_RESPONSE_STREAM_HOST), and then its last address:
    an IPv6 link-local one on most interfaces, where it cannot listen ("Failed to start TcpListender on fe80::...", seen
    with 1.3.1 and 1.4.2; the model is never listed). So there the launcher does not name one, and Dynamo takes the
    address that leads out of this machine. With several networks that may be another one than the advertised one.
    """
    name = "DYN_TCP_RESPONSE_STREAM_HOST"
    free = [process for process in plan.processes if BACKEND in process.env and name not in process.env]
    leading = source_address()
    if plan.join.alone or not free or not leading or leading == plan.join.host:
        return
    yield Finding(
        code="answers-elsewhere",
        what=f"this node is advertised as {plan.join.host}, and its Dynamo would take answers at {leading}",
        where="--advertise",
        why="Dynamo before 1.5 chooses that address itself; workers of other nodes may not reach it, and every request "
        "would fail",
        fix=f"--advertise {leading}, Dynamo 1.5 or later, or an interface without IPv6 and "
        f"--set frontend.env.{name}={plan.join.interface} (and engine.env)",
    )


CHECKS: tuple[Check, ...] = (
    Check(clash, ("node-taken", "node-unlike")),
    Check(answers, ("answers-elsewhere",)),
)
