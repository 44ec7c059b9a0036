"""Past one node with etcd: who of the deployment is there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from launcher.checks.base import Check
from launcher.checks.etcd import asked, closed
from launcher.findings import Finding
from launcher.machine import Machine
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


CHECKS: tuple[Check, ...] = (Check(clash, ("node-taken", "node-unlike")),)
