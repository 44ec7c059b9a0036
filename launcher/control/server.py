"""The launcher's end of the control socket.

One connection, one order: a JSON line `{"do": NAME, ...}` in; JSON lines out, `{"note": TEXT}` while it goes on and
last `{"ok": true}` or `{"ok": false, "error": TEXT}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

Note = Callable[[str], None]
Action = Callable[[Mapping[str, Any], Note], Awaitable[None]]
"""Carries an order out, telling what it does; raises Refused where it does not."""
LONGEST = 1 << 16
"""Bytes of an order."""
ORDER_S = 10.0
"""For an order to arrive after the connection."""


class Refused(Exception):
    """An order that is not carried out, or not to its end, and why."""


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
        try:
            async with asyncio.timeout(ORDER_S):
                line = await reader.readline()
            order = json.loads(line)
            action = self._actions[order["do"]]
        except (TimeoutError, ValueError, KeyError, TypeError):
            _send(writer, {"ok": False, "error": f"no such order; there are: {', '.join(self._actions)}"})
            return
        self._log(f"ordered over the control socket: {line.decode(errors='replace').strip()[:200]}")
        try:
            await action(order, lambda text: _send(writer, {"note": text}))
        except Refused as refusal:
            _send(writer, {"ok": False, "error": str(refusal)})
        else:
            _send(writer, {"ok": True})


def _send(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


def _peer(writer: asyncio.StreamWriter) -> int:
    """The user at the other end, as the kernel knows it."""
    sock = writer.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)
