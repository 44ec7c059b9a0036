"""The admin server's listening sockets, taken before anything is started: later is too late for a taken port."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from launcher.findings import Exit, Finding, LauncherError

BACKLOG = 128


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of `host`. Raises LauncherError where one cannot."""
    taken: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in _addresses(host, port):
            one = socket.socket(family, kind, protocol)
            taken.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(BACKLOG)
            one.setblocking(False)
    except OSError as error:
        close(taken)
        raise LauncherError(
            Finding(
                code="port-taken",
                what=f"the admin server cannot listen on {host}:{port}: {error.strerror or error}",
                where="--admin-port",
                fix="choose another --admin-port or --admin-host",
            ),
            Exit.CHECK_FAILED,
        ) from None
    return taken


def close(sockets: Sequence[socket.socket]) -> None:
    """Listen no more."""
    for each in sockets:
        each.close()


def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))  # type: ignore[arg-type]
