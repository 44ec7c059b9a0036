"""Writes to stdout from a thread, through a bounded queue: a slow reader of stdout stops no child for long."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

LIMIT = 8 << 20
"""Bytes that may wait for stdout."""
PATIENCE_S = 0.5
FLOOR = 256 << 10
"""While stdout takes at least FLOOR bytes in PATIENCE_S, a full queue makes the caller wait; below it, lines drop."""
_BATCH = 256 << 10


class LogWriter:
    """A queue of text blocks and the thread that writes them to `fd`.

    Blocks come from one producer at a time per call; each call is atomic. Where stdout is closed, blocks are
    discarded. Where it is too slow, blocks are dropped and counted, and a notice made by `notice(lines)` says
    so as soon as there is room.
    """

    def __init__(
        self,
        fd: int = 1,
        *,
        notice: Callable[[int], str] = lambda lines: f"{lines} lines dropped, stdout slow\n",
        limit: int = LIMIT,
        patience_s: float = PATIENCE_S,
        floor: int = FLOOR,
    ) -> None:
        self._fd = fd
        self._notice = notice
        self._limit, self._patience_s, self._floor = limit, patience_s, floor
        self._queue: deque[bytes] = deque()
        self._waiting = 0
        self._written = 0
        self._pending_drop = 0
        self._dropping = False
        self._closing = False
        self._idle = True
        self._condition = threading.Condition()
        self.dropped = 0
        """Lines dropped so far."""
        self.lost = False
        """True once stdout was found closed."""
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def put(self, block: str, lines: int, *, wait: bool = True) -> None:
        """Queue `block`, which holds `lines` lines. May wait for a stdout that makes progress, unless told not to."""
        if not block:
            return
        data = block.encode("utf-8", "backslashreplace")
        with self._condition:
            if self.lost or self._closing:
                return
            if not self._room(len(data), wait):
                self._dropping = True
                self._pending_drop += lines
                self.dropped += lines
                return
            self._append(data)

    def _append(self, data: bytes) -> None:
        if self._pending_drop:
            text = self._notice(self._pending_drop).encode("utf-8", "backslashreplace")
            self._pending_drop = 0
            self._queue.append(text)
            self._waiting += len(text)
        self._queue.append(data)
        self._waiting += len(data)
        self._condition.notify_all()

    def _room(self, size: int, wait: bool) -> bool:
        if self._dropping:
            # Half empty before it starts again: one long gap says more than many short ones.
            if self._waiting > self._limit // 2:
                return False
            self._dropping = False
        if self._waiting + size <= self._limit or not self._waiting:
            return True
        if not wait:
            return False
        before, until = self._written, time.monotonic() + self._patience_s
        while self._waiting and self._waiting + size > self._limit:
            left = until - time.monotonic()
            if left <= 0:
                if self._written - before < self._floor:
                    return False
                before, until = self._written, time.monotonic() + self._patience_s
            else:
                self._condition.wait(left)
            if self.lost or self._closing:
                return True
        return True

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._queue:
                    self._idle = True
                    self._condition.notify_all()
                    if self._closing:
                        return
                    self._condition.wait()
                self._idle = False
                batch, size = [], 0
                while self._queue and size < _BATCH:
                    batch.append(self._queue.popleft())
                    size += len(batch[-1])
            self._write(b"".join(batch))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.lost:
            try:
                count = os.write(self._fd, view[:65536])
            except BlockingIOError:
                # Somebody who shares the descriptor made it non-blocking.
                select.select((), (self._fd,), (), 1.0)
                continue
            except (OSError, ValueError):
                with self._condition:
                    self.lost = True
                    self._queue.clear()
                    self._waiting = 0
                    self._condition.notify_all()
                return
            view = view[count:]
            with self._condition:
                self._written += count
                self._waiting -= count
                self._condition.notify_all()

    def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until the queue is written; False where stdout did not take it in time."""
        until = time.monotonic() + timeout_s
        with self._condition:
            while (self._queue or not self._idle) and not self.lost:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._condition.wait(left)
        return True

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what waits, within `timeout_s` seconds, and end the thread."""
        with self._condition:
            if self._pending_drop:
                self._append(b"")
        self.flush(timeout_s)
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        # A thread stuck in write(2) is a daemon: it ends with the process.
        self._thread.join(0.2)
