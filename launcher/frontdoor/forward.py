"""Passes the connections of a listening socket on to an address, bytes as they come, with back pressure."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import resource
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import cast

Address = tuple[str, int]
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER for zero seconds."""
AGAIN_S = 0.02
"""Pause before another try where the address refused."""
RESERVE = 256
"""Descriptors that stay free for the launcher itself, which can do nothing without: not even look at /proc."""


class Side(asyncio.Protocol):
    """One end of a forwarded connection; what it reads is written to `other`."""

    def __init__(self, over: Callable[[Exception | None], None] = lambda exc: None) -> None:
        """`over` is called when the connection has ended, with the error where there was one."""
        self._over = over
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self._early: list[bytes] = []
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def join(self, other: Side) -> None:
        """From now on this is written to the other's transport, which is there."""
        self.other = other
        for data in self._early:
            other.write(data)
        self._early.clear()
        if self._ended:
            other.finish()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def finish(self) -> None:
        """Nothing more will be written."""
        if self.transport is not None and not self.transport.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                self.transport.write_eof()

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(
                data
            )  # A server that speaks before the client's end is made; a few bytes at most.
        else:
            self.other.write(data)

    def eof_received(self) -> bool:
        self._ended = True
        if self.other is not None:
            self.other.finish()
            if self.other._ended:
                # Both directions are over, and nobody else closes what half-closed twice.
                for side in (self, self.other):
                    if side.transport is not None:
                        side.transport.close()
        return True  # The other direction goes on.

    def connection_lost(self, exc: Exception | None) -> None:
        self._over(exc)
        if self.other is not None and self.other.transport is not None:
            if exc is None:
                self.other.transport.close()
            else:
                # A cut must look like one (a reset): an orderly end would pass for a whole answer.
                with contextlib.suppress(OSError):
                    self.other.transport.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, RESET
                    )
                self.other.transport.abort()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if (
            self.other is not None
            and self.other.transport is not None
            and not self.other.transport.is_closing()
        ):
            self.other.transport.resume_reading()


class Forwarder:
    """Accepts on a listening socket. `where` says the address for a new connection, waiting until there is one.

    `doubt` is told of an address that refused a connection or cut one: a process that dies stops serving some 40 ms
    before anybody hears of its end.
    """

    def __init__(
        self,
        listener: socket.socket,
        where: Callable[[], Awaitable[Address | None]],
        doubt: Callable[[Address], None] = lambda address: None,
        most: int | None = None,
    ) -> None:
        """`most`: connections at a time; the others wait. By default what this process's limit of open files allows."""
        self._listener = listener
        self._where = where
        self._doubt = doubt
        self._most = most if most is not None else _most()
        self._open = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self.connections = 0
        """Passed on since the start."""

    def start(self) -> None:
        """Accept until `stop`."""
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="front-door")

    def stop(self) -> None:
        """Accept no more, refuse what waits; what is passed on goes on."""
        if self._accepting is not None:
            self._accepting.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._open + len(self._tasks) >= self._most:
                await asyncio.sleep(AGAIN_S)  # they wait in the kernel's queue
                continue
            try:
                # Not `create_server`: what uvloop makes of a socket that listens already never accepts.
                sock, _ = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(0.1)  # no descriptors left, or a client that has gone
                continue
            task = loop.create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        server: Side | None = None
        try:
            server = await self._connect()
            _, client = await loop.connect_accepted_socket(Side, sock)
        except (OSError, asyncio.CancelledError):
            sock.close()
            if server is not None and server.transport is not None:
                server.transport.abort()
            return
        self.connections += 1
        server.join(client)
        client.join(server)

    async def _connect(self) -> Side:
        """An end at whoever serves; ConnectionError where nobody does in time.

        One that refuses has died a moment ago, and nothing was sent to it: that is no reason to cut the client.
        """
        while True:
            address = await self._where()
            if address is None:
                raise ConnectionError("nobody serves")
            make = functools.partial(Side, functools.partial(self._ended, address))
            try:
                _, server = await asyncio.get_running_loop().create_connection(make, *address)
            except ConnectionRefusedError:
                self._doubt(address)
                await asyncio.sleep(AGAIN_S)
            else:
                self._open += 1
                return server

    def _ended(self, address: Address, exc: Exception | None) -> None:
        self._open -= 1
        if exc is not None:
            self._doubt(address)


def _most() -> int:
    """Two descriptors a connection. Raises the limit as far as it may be: shells give 1024, which 400 streams fill."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (soft - RESERVE) // 2)
