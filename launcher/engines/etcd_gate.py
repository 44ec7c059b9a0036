"""Dynamo's way to an etcd behind TLS or of several members: a port on loopback that leads to a member that answers.

Dynamo's own client (1.3.1, 1.4.2 and 1.6.1, etcd-client 0.17) can do TLS only with a certificate of its own and without
a user: its options are either a user or certificates, and without certificates it trusts no authority at all. (And it
takes ETCD_AUTH_CA, _CLIENT_CERT and _CLIENT_KEY for the PEM texts themselves; with paths in them it never connects.) So
it speaks plainly to this gate, with its user and password where etcd has users, and the gate does TLS for it.

A member that is silent is given up after `SILENCE_S`, and Dynamo's next connection goes to another. By itself it
notices after 25 s (1.6.1), or when its lease of 30 s has ended and with it the process (1.3.1).

Who connects is looked up in the kernel's table of sockets: only processes of the gate's own user get through, who could
read the key's file themselves. Files are read anew for each connection, so that a renewed certificate needs no restart.

Run by file name under whatever interpreter has Dynamo, so nothing of this package is imported here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import ssl
import sys
from pathlib import Path
from urllib.parse import urlsplit

CONNECT_S = 3.0
"""For reaching one member, handshake included."""
SILENCE_S = 6.0
"""A member that acknowledges nothing for so long is lost: a cut cable closes no connection."""
CHUNK = 1 << 16
ROOT = 0


def say(text: str) -> None:
    """One line of the gate's log."""
    print(f"etcd gate: {text}", file=sys.stderr, flush=True)


def tls(files: argparse.Namespace) -> ssl.SSLContext:
    """What to trust and what to show. OSError (SSLError with it) where a file is missing or is none."""
    context = ssl.create_default_context(cafile=files.ca or None)
    if files.cert:
        context.load_cert_chain(files.cert, files.key or None)
    context.set_alpn_protocols(["h2"])
    return context


def owner(port: int, at: int) -> int | None:
    """The user whose loopback socket has `port` and is connected to port `at` here; None where there is none."""
    here, there = f"0100007F:{port:04X}", f"0100007F:{at:04X}"
    with Path("/proc/net/tcp").open(encoding="ascii") as table:
        for line in table:
            words = line.split()
            if words[1] == here and words[2] == there:
                return int(words[7])
    return None


def watch(sock: socket.socket) -> None:
    """Have the kernel end the connection when the other side is silent."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE_S * 1000))


class Gate:
    """Passes connections on; a member that answers is asked first next time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._members: list[str] = list(options.members)
        self._said = ""

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. OSError where the port is taken."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, ended.set)
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._options.port, limit=CHUNK)
        say(f"127.0.0.1:{self._options.port} leads to {', '.join(self._members)}")
        await ended.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            user = owner(writer.get_extra_info("peername")[1], self._options.port)
            if user not in (ROOT, os.geteuid()):
                say(f"a process of user {user} was turned away")
                return
            member = await self._member()
            if member is None:
                return
            away_reader, away_writer = member
            ways = [
                asyncio.ensure_future(pump(reader, away_writer)),
                asyncio.ensure_future(pump(away_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                away_writer.transport.abort()
        finally:
            writer.transport.abort()

    async def _member(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        said = []
        for member in list(self._members):
            parts = urlsplit(member)
            try:
                secure = tls(self._options) if parts.scheme == "https" else None
                reader, writer = await asyncio.wait_for(
                    asyncio.open_connection(parts.hostname, parts.port or 2379, ssl=secure, limit=CHUNK),
                    CONNECT_S,
                )
            except TimeoutError:
                said.append(f"{member}: no answer in {CONNECT_S:g} s")
            except OSError as error:
                said.append(f"{member}: {error}")
            else:
                watch(writer.get_extra_info("socket"))
                if self._said:
                    self._said = ""
                    say(f"{member} answers")
                return reader, writer
            # The next connection begins with one that answers.
            with contextlib.suppress(ValueError):
                self._members.remove(member)
                self._members.append(member)
        if self._said != "; ".join(said):
            self._said = "; ".join(said)
            say(f"no member of etcd can be reached: {self._said}")
        return None


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes of one direction, until either side ends."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()


def main() -> None:
    """PORT and the members' URLs, with the files that TLS takes."""
    parser = argparse.ArgumentParser(description="a port on loopback that leads to etcd over TLS")
    parser.add_argument("port", type=int)
    parser.add_argument("members", nargs="+", metavar="URL")
    parser.add_argument("--ca", default="", help="authorities to trust instead of the system's")
    parser.add_argument("--cert", default="", help="certificate to show")
    parser.add_argument("--key", default="", help="its key, where it is in a file of its own")
    asyncio.run(Gate(parser.parse_args()).run())


if __name__ == "__main__":
    main()
