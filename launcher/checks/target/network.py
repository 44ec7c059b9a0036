"""Public addresses and ports, before any machine is looked at."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.findings import Finding, Severity
from launcher.plan.ports import BLOCK
from launcher.target.resolve import Resolved

ANYWHERE = ("0.0.0.0", "::", "")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def ports(resolved: Resolved) -> Iterator[Finding]:
    """The API, the admin server and the internal ports must not overlap."""
    network = resolved.target.network
    http, admin = network.http_port, network.admin_port
    if http and http == admin:
        free = admin + 1000 if admin + 1000 < 65536 else admin - 1000
        yield Finding(
            code="port-clash",
            what=f"the API and the admin server both have port {http}",
            where=resolved.origin("network", "admin_port"),
            why="the second of them could not listen",
            fix=f"--admin-port {free}",
        )
    for purpose, port in (("http_port", http), ("admin_port", admin)):
        # A block that is taken moves up by its size, to the ceiling at most.
        if network.base_port <= port < network.base_port + BLOCK:
            yield Finding(
                code="port-clash",
                what=f"network.{purpose} {port} lies in the block of internal ports "
                f"({network.base_port}-{network.base_port + BLOCK - 1})",
                where=resolved.origin("network", purpose),
                why="a worker could be given the same number",
                fix=f"a port below {network.base_port}, or another --base-port",
            )


def admin_open(resolved: Resolved) -> Iterator[Finding]:
    """The admin server shows plan, states and logs of incidents to whoever reaches it; it asks for no password.

    The pod manifests open it for the kubelet's probes; on a bare node it stays on loopback.
    """
    host = resolved.target.network.admin_host
    if host not in LOOPBACK:
        yield Finding(
            code="admin-open",
            what=f"the admin server listens on {host or 'every address'}",
            severity=Severity.INFO,
            where=resolved.origin("network", "admin_host"),
            why="it is read-only and asks for no password: everyone on that network sees plan and states",
            fix="in a pod the kubelet needs it; elsewhere --admin-host 127.0.0.1",
        )
