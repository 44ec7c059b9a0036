"""Keeping a dead server's listening socket, and passing its connections on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from launcher.frontdoor.forward import Address, Forwarder
from launcher.frontdoor.keep import listening_socket
from tests.supervise.conftest import free_port, python, run, soon

LISTEN = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
time.sleep(1000)
"""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers everything up to the end of what it is sent, in capitals, then closes."""
    writer.write((await reader.read()).upper())
    await writer.drain()
    writer.close()


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def kept(port: int) -> socket.socket:
    """The socket of a server that is dead by now."""
    with subprocess.Popen(python(LISTEN, port), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        sock = listening_socket(server.pid, port)
        server.kill()
    return sock


def test_connections_to_a_dead_server_wait_and_are_passed_on() -> None:
    async def main() -> None:
        port = free_port()
        sock = kept(port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)  # nobody accepts yet
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        address: Address = server.sockets[0].getsockname()[:2]

        async def where() -> Address:
            return address

        forwarder = Forwarder(sock, where)
        forwarder.start()
        before = fds()
        for _ in range(20):
            writer.write(b"x" * 300_000)
            writer.write_eof()
            assert await reader.read() == b"X" * 300_000
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert forwarder.connections >= 20
        writer.close()
        await soon(lambda: fds() <= before, "no descriptor is left open")
        forwarder.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        server.close()

    run(main())


def test_a_frontend_that_has_just_died_costs_a_new_connection_nothing() -> None:
    async def main() -> None:
        dead: Address = ("127.0.0.1", free_port())
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        doubted: list[Address] = []

        async def where() -> Address:
            found: Address = server.sockets[0].getsockname()[:2]
            return dead if len(doubted) < 2 else found

        port = free_port()
        forwarder = Forwarder(kept(port), where, doubted.append)
        forwarder.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"HELLO"
        assert doubted == [dead, dead]
        writer.close()
        forwarder.stop()
        server.close()

    run(main())


def test_more_connections_than_descriptors_wait_and_are_served_later() -> None:
    async def main() -> None:
        port = free_port()
        server = await asyncio.start_server(echo, "127.0.0.1", 0)

        async def where() -> Address:
            return server.sockets[0].getsockname()[:2]  # type: ignore[no-any-return]

        forwarder = Forwarder(kept(port), where, most=3)
        forwarder.start()
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        await soon(lambda: forwarder.connections == 3)
        await asyncio.sleep(0.2)
        assert forwarder.connections == 3
        for reader, writer in clients:
            writer.write(b"x")
            writer.write_eof()
            assert await reader.read() == b"X"
            writer.close()
        assert forwarder.connections == 8
        forwarder.stop()
        server.close()

    run(main())


def test_a_cut_behind_the_door_is_a_cut_before_it() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"half")
        await writer.drain()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def main() -> None:
        port = free_port()
        server = await asyncio.start_server(rude, "127.0.0.1", 0)

        async def where() -> Address:
            return server.sockets[0].getsockname()[:2]  # type: ignore[no-any-return]

        doubted: list[Address] = []
        forwarder = Forwarder(kept(port), where, doubted.append)
        forwarder.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(100)
        assert doubted == [await where()]  # the next connection asks first whether it still serves
        forwarder.stop()
        server.close()

    run(main())


def test_without_anybody_who_serves_the_connection_is_closed() -> None:
    async def main() -> None:
        port = free_port()

        async def where() -> None:
            return None

        forwarder = Forwarder(kept(port), where)
        forwarder.start()
        reader, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        forwarder.stop()

    run(main())


def test_a_process_that_does_not_listen_there_is_an_error(tmp_path: Path) -> None:
    with subprocess.Popen(python("import time; time.sleep(1000)")) as other:
        with pytest.raises(OSError, match="does not listen"):
            listening_socket(other.pid, free_port())
        other.send_signal(signal.SIGKILL)
