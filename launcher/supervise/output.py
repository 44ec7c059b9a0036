"""Connects a child's two pipes to the log pump, and knows when their last line has been read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from .child import Child
from .logpump import LogPump

PIPE_S = 1.0
"""How long the pipes of an ended tree are read on, where somebody unknown keeps them open."""


class Output:
    """Both streams of one child. Make it in the event loop's thread."""

    def __init__(
        self, pump: LogPump, process: str, role: str, child: Child, see: Callable[[Sequence[str]], None]
    ) -> None:
        """`see` gets every batch of lines, in the pump's thread."""
        self._pump = pump
        self._loop = asyncio.get_running_loop()
        self._open = 2
        self._ended = asyncio.Event()
        self._sources = [
            pump.add(process, role, stream, fd, on_lines=see, on_end=self._on_end)
            for stream, fd in (("stdout", child.stdout), ("stderr", child.stderr))
        ]

    def _on_end(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed; nobody is left to wait
            self._loop.call_soon_threadsafe(self._one_ended)

    def _one_ended(self) -> None:
        self._open -= 1
        if not self._open:
            self._ended.set()

    async def read_out(self, timeout_s: float = PIPE_S) -> None:
        """After the tree's end: return once its last line is where `LogPump.last_lines` finds it."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            for source in self._sources:
                self._pump.drop(source)
            try:
                async with asyncio.timeout(timeout_s):
                    await self._ended.wait()
            except TimeoutError:
                pass
