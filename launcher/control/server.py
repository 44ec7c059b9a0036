"""The launcher's end of the control socket.

One connection, one order: a JSON line `{"do": NAME, ...}` in; JSON lines out: `{"accepted": true}` as soon as the order
is known to make sense, `{"note": TEXT}` while it goes on, and last `{"ok": true}` or `{"ok": false, "error": TEXT}`. An
order that is refused before it was accepted was wrong in itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from launcher.findings import printable, short


class Note(Protocol):
    """The asker, while its order is carried out."""

    def __call__(self, text: str) -> None:
        """Tell it something."""

    def accept(self) -> None:
        """The order makes sense; what comes now takes its time. Raises Gone where nobody waits for it any more."""

    def gone(self) -> bool:
        """Whether it has hung up."""


Action = Callable[[Mapping[str, Any], Note], Awaitable[None]]
"""Carries an order out, telling what it does; raises Refused where it does not."""
LONGEST = 1 << 16
"""Bytes of an order."""
ORDER_S = 10.0
"""For an order to arrive after the connection."""


class Refused(Exception):
    """An order that is not carried out, or not to its end, and why."""


class Gone(Exception):
    """The asker had hung up before its order was begun."""


def names_of(order: Mapping[str, Any], field: str) -> list[str]:
    """A field of an order that is a list of names, each once; empty where it is missing. Raises Refused."""
    value = order.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Refused(f"{field} is {_shown(value)}, not a list of names")
    return list(dict.fromkeys(value))


def flag_of(order: Mapping[str, Any], field: str) -> bool:
    """A field of an order that is true or false; false where it is missing. Raises Refused."""
    value = order.get(field)
    if value is not None and not isinstance(value, bool):
        raise Refused(f"{field} is {_shown(value)}, not true or false")
    return bool(value)


def only(order: Mapping[str, Any], *fields: str) -> None:
    """Refuse an order with a field that it does not have: what was meant by it would silently not happen."""
    unknown = [_shown(field) for field in order if field not in ("do", *fields)]
    if unknown:
        raise Refused(f"unknown: {', '.join(unknown)}; the order has: {', '.join(fields)}")


def _shown(value: object) -> str:
    """A value of an order, short, as JSON writes it."""
    return short(json.dumps(value))


class _Asker:
    """The asker at the other end of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def __call__(self, text: str) -> None:
        self.send({"note": text})

    def accept(self) -> None:
        if self.gone():
            raise Gone
        self.send({"accepted": True})

    def gone(self) -> bool:
        # The kernel knows at once; the stream would learn of it a turn of the event loop after the order. Who only
        # closed its own direction (POLLRDHUP) still listens.
        descriptor = self._writer.get_extra_info("socket").fileno()
        if self._writer.is_closing() or descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, 0)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))

    def send(self, message: Mapping[str, Any]) -> None:
        _send(self._writer, message)


class ControlServer:
    """Serves one socket. `actions`: what can be ordered."""

    def __init__(self, path: Path, actions: Mapping[str, Action], log: Callable[[str], None]) -> None:
        self._path = path
        self._actions = actions
        self._log = log
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; the socket is the user's alone (0600) from the moment it exists."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LONGEST)

    async def close(self) -> None:
        """Stop listening, and give up what is being carried out."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if _peer(writer) not in (os.getuid(), 0):
                return
            await self._one(reader, writer)
        except asyncio.CancelledError:
            _send(writer, {"ok": False, "error": "the launcher is ending"})
        except (OSError, asyncio.IncompleteReadError):
            pass  # The asker has gone; what it ordered was carried out as far as it got.
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.drain()
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asker = _Asker(writer)
        line = b""
        try:
            async with asyncio.timeout(ORDER_S):
                line = await reader.readline()
            order = json.loads(line)
            action = self._actions[order["do"]]
        except (TimeoutError, ValueError, KeyError, TypeError, RecursionError):
            # An empty line is no order: somebody only looked whether anybody answers.
            self._refused(asker, f"no such order; there are: {', '.join(self._actions)}", log=bool(line))
            return
        text = printable(short(line.decode(errors="replace").strip(), 200))
        if asker.gone():
            # It gave up while this process stood still: whoever it was has been told that nothing happened.
            self._log(f"not begun, as the asker has hung up: {text}")
            return
        self._log(f"ordered over the control socket: {text}")
        try:
            await action(order, asker)
        except Refused as refusal:
            self._refused(asker, str(refusal))
        except Gone:
            self._log(f"not begun, as the asker has hung up: {text}")
        except Exception as error:  # a fault of ours: the asker and the log shall know
            self._refused(asker, f"the launcher failed at it: {type(error).__name__}: {error}")
        else:
            asker.send({"ok": True})

    def _refused(self, asker: _Asker, why: str, *, log: bool = True) -> None:
        if log:
            self._log(f"order refused: {printable(short(why, 500))}")
        asker.send({"ok": False, "error": why})


def _send(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


def _peer(writer: asyncio.StreamWriter) -> int:
    """The user at the other end, as the kernel knows it."""
    sock = writer.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)
