"""Workers of a node that was killed whole, launcher and all: nobody there withdraws them, so the others do.

Their leases would end by themselves, which takes as long as etcd may be away (30 s). Until then the frontends of
Dynamo 1.3.1 send most requests to them, for the dead look idle: 1,381 of 1,707 failed (scripts/bench_nodes.py, before
this was here). Two things must be true, so that neither a launcher that stands still nor a cut cable costs a worker
its lease: the node's launcher has not renewed its own, and the node itself refuses connections where the worker took
requests. A node that is silent may come back; one that refuses is there, and has no such process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from launcher.discovery.etcd import Etcd
from launcher.discovery.nodes import Node

STALE_S = 3
"""Since a launcher last renewed its lease, in whole seconds; a living one does every second."""
CONNECT_S = 0.5
Where = tuple[str, int]
"""Address and port where a worker takes requests."""


async def revoke(
    etcd: Etcd, nodes: Iterable[Node], leases: Mapping[Where, Iterable[int]], lease_s: int
) -> dict[str, int]:
    """Withdraw the workers of nodes that were killed; returns how many of each, by its name. EtcdError.

    `leases`: of the instances at each address; `lease_s`: for how long launchers ask.
    """
    gone: dict[str, int] = {}
    for node in nodes:
        places = [where for where in node.workers() if leases.get(where)]
        if not places or lease_s - await etcd.time_to_live(node.lease) < STALE_S:
            continue
        closed = await asyncio.gather(*(_refuses(*where) for where in places))
        for where, refused in zip(places, closed, strict=True):
            for lease in leases[where] if refused else ():
                gone[node.name] = gone.get(node.name, 0) + await etcd.revoke(lease)
    return {name: count for name, count in gone.items() if count}


async def _refuses(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_S)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return False
