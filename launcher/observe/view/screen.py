"""Owns the terminal while a live view is shown: log lines scroll above a frame that is drawn anew.

Log lines come through a pipe, so that the log writer's own rules for a slow reader hold here too: no child waits for
this thread. Nothing about the terminal is changed that would have to be put back (no alternate screen, no raw mode, no
hidden cursor), so that even SIGKILL leaves it usable.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

INTERVAL_S = 0.5
"""Between frames."""
CHUNK = 1 << 16
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized update: terminals that know it show the whole change at once, the others ignore it."""
FALLBACK = (80, 24)


class Line(NamedTuple):
    """A line of the frame: what is written, and how many columns that takes."""

    text: str
    width: int


Frame = Callable[[int, int], Sequence[Line]]
"""The frame for a terminal of so many columns and rows. Called in the screen's thread."""


class Screen:
    """Writes to the terminal at `fd`. Give `pipe` to the log writer; call `close` after its last line."""

    def __init__(self, frame: Frame, fd: int = 1, *, interval_s: float = INTERVAL_S) -> None:
        self._frame = frame
        self._fd = fd
        self._interval_s = interval_s
        self._read, self.pipe = os.pipe()
        self._drawn: list[Line] = []
        self._drawn_on = (0, 0)
        self._rest = b""
        self._lost = False
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is in the pipe, take the frame away, end. A terminal that takes nothing is left alone."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1
        self._thread.join(timeout_s)

    # -- the thread

    def _run(self) -> None:
        due = 0.0
        while True:
            now = time.monotonic()
            ready = select.select((self._read,), (), (), max(0.0, due - now))[0]
            data = os.read(self._read, CHUNK) if ready else b""
            if ready and not data:
                break
            frame: Sequence[Line] | None = None
            if time.monotonic() >= due:
                frame = self._make()
                due = time.monotonic() + self._interval_s
            self._paint(data, frame)
        os.close(self._read)
        self._paint(b"\n" if self._rest else b"", [])

    def _make(self) -> Sequence[Line]:
        columns, rows = self._terminal_size()
        try:
            # One row must stay for the log, or an update could not tell its own lines from those of before.
            return [line for line in self._frame(columns, rows) if line.width <= columns][: rows - 1]
        except Exception as error:  # the view is an extra; the log goes on without it
            text = f"view: {type(error).__name__}: {error}"[: columns - 1]
            return [Line(text, len(text))]

    def _paint(self, data: bytes, frame: Sequence[Line] | None) -> None:
        """Write whole lines of the log, and the frame below them; None leaves the frame as it is."""
        head, newline, tail = (self._rest + data).rpartition(b"\n")
        self._rest = tail
        lines = list(frame) if frame is not None else self._drawn
        size = self._terminal_size()
        if not newline and lines == self._drawn and size == self._drawn_on:
            return
        parts = [
            BEGIN.encode(),
            self._erase(size[0]),
            head + newline,
            "\n".join(line.text for line in lines).encode(),
        ]
        self._write(b"".join([*parts, END.encode()]))
        self._drawn, self._drawn_on = lines, size

    def _erase(self, columns: int) -> bytes:
        """Back to where the frame began, and clear from there. A terminal that got narrower has wrapped its lines."""
        if not self._drawn:
            return b""
        rows = sum(max(1, -(-line.width // columns)) for line in self._drawn)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J".encode()

    def _terminal_size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(self._fd)
        except OSError:
            return FALLBACK
        return (columns or FALLBACK[0], rows or FALLBACK[1])

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._lost:
            try:
                view = view[os.write(self._fd, view[:4096]) :]
            except BlockingIOError:
                with contextlib.suppress(OSError, ValueError):
                    select.select((), (self._fd,), (), 1.0)
            except OSError:
                # Hung up. The pipe is still emptied: the log writer must not wait for a terminal that is gone.
                self._lost = True
