"""Moves every line of every child to stdout, to files and to memory: once, in order, without stopping a child.

One thread reads all pipes, so that neither the event loop nor a flood of lines delays the other.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .lines import LineSplitter
from .logfile import KEEP, MAX_BYTES, RotatingFile
from .logs import LAUNCHER, Format, TextFormat, has_clock, plain, stamp
from .logwriter import LogWriter

CHUNK = 1 << 16
RING = 200
_RING_TEXT = 4096


@dataclass(eq=False)
class Source:
    """One stream of one child while it is read."""

    process: str
    role: str
    stream: str
    fd: int
    on_lines: Callable[[Sequence[str]], None] | None
    """Called in the pump's thread with the lines of a batch, escape sequences removed; must be quick."""
    on_end: Callable[[], None] | None
    """Called in the pump's thread after the last line."""
    splitter: LineSplitter = field(default_factory=LineSplitter)


class LogPump:
    """Reads the pipes of all children and writes their lines; also the launcher's own log.

    `log_dir`: one rotating file per process that keeps every line, whatever becomes of stdout. `overhear` gets each
    batch of a child's lines as `on_lines` does, with the process's name.
    """

    def __init__(
        self,
        form: Format | None = None,
        writer: LogWriter | None = None,
        *,
        log_dir: Path | None = None,
        overhear: Callable[[str, Sequence[str]], None] | None = None,
        file_bytes: int = MAX_BYTES,
        file_keep: int = KEEP,
        ring: int = RING,
    ) -> None:
        self._format: Format = form if form is not None else TextFormat()
        self.writer = writer if writer is not None else LogWriter(notice=self._notice)
        self._log_dir = log_dir
        self._overhear = overhear
        self._file_limits = (file_bytes, file_keep)
        self._files: dict[str, RotatingFile | None] = {}
        self._file_lock = threading.Lock()
        self._ring = ring
        self._last: dict[str, deque[tuple[float, str, str]]] = {}
        self._sources: dict[int, Source] = {}
        self._orders: deque[Callable[[], None]] = deque()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._closing = False
        self.lines = 0
        """Lines read so far."""
        self._thread = threading.Thread(target=self._run, name="log-pump", daemon=True)
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def _notice(self, lines: int) -> str:
        return self._format.own("warning", f"{lines} lines dropped, stdout slow", time.time())

    def add(
        self,
        process: str,
        role: str,
        stream: str,
        fd: int,
        *,
        on_lines: Callable[[Sequence[str]], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> Source:
        """Read `fd` (a pipe; the pump closes it) until its end as `stream` of `process`."""
        os.set_blocking(fd, False)
        source = Source(process, role, stream, fd, on_lines, on_end)
        self._order(lambda: self._register(source))
        return source

    def drop(self, source: Source) -> None:
        """Stop reading a stream that somebody unknown still holds open; takes what is in the pipe first."""
        self._order(lambda: self._finish(source, read=True))

    def log(self, message: str, level: str = "info") -> None:
        """A line of the launcher's own, through the same queue. Never waits."""
        now = time.time()
        self.writer.put(self._format.own(level, message, now), message.count("\n") + 1, wait=False)
        lines = message.split("\n")
        self._remember(LAUNCHER, level, lines, now)
        self._to_file(LAUNCHER, level, [f"{level.upper()} {line}" for line in lines], now)

    def page(self, text: str) -> None:
        """A page of the launcher's own: bare on a text log, so that it reads as a page; one record in a JSON log."""
        if not isinstance(self._format, TextFormat):
            return self.log(text)
        lines = text.split("\n")
        self.writer.put(text + "\n", len(lines), wait=False)
        self._to_file(LAUNCHER, "info", lines, time.time())
        return None

    def last_lines(self, process: str, count: int = RING) -> list[str]:
        """The last lines of a process, oldest first, over its restarts; escape sequences removed."""
        return [text for _, _, text in list(self._last.get(process, ()))[-count:]]

    def last_records(self, process: str, count: int = RING) -> list[tuple[float, str, str]]:
        """As `last_lines`, each with its time (seconds since the epoch) and stream."""
        return list(self._last.get(process, ()))[-count:]

    def close(self, timeout_s: float = 2.0) -> None:
        """Read what the pipes hold, write what waits (within `timeout_s` seconds), end the threads."""

        def stop() -> None:
            self._closing = True

        self._order(stop)
        self._thread.join(timeout_s)
        self.writer.close(timeout_s)
        with self._file_lock:
            for file in self._files.values():
                if file is not None:
                    file.close()
            self._files.clear()
            self._log_dir = None

    # -- the thread

    def _order(self, action: Callable[[], None]) -> None:
        self._orders.append(action)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while not self._closing:
            for fd, _ in self._epoll.poll():
                if fd == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake)
                    while self._orders:
                        self._orders.popleft()()
                elif (source := self._sources.get(fd)) is not None and not self._read(source):
                    self._finish(source, read=False)
        for source in list(self._sources.values()):
            self._finish(source, read=True)

    def _register(self, source: Source) -> None:
        self._sources[source.fd] = source
        self._epoll.register(source.fd, select.EPOLLIN)

    def _read(self, source: Source) -> bool:
        """Take one chunk; False at the end of the stream."""
        try:
            data = os.read(source.fd, CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            self._take(source, source.splitter.feed(data, time.monotonic()))
        return bool(data)

    def _finish(self, source: Source, *, read: bool) -> None:
        if self._sources.pop(source.fd, None) is not source:
            return
        if read:
            # Bounded: whoever still writes may write for ever.
            for _ in range(64):
                if not select.select((source.fd,), (), (), 0)[0] or not self._read(source):
                    break
        self._epoll.unregister(source.fd)
        os.close(source.fd)
        self._take(source, source.splitter.end())
        if source.on_end is not None:
            source.on_end()

    def _take(self, source: Source, lines: list[str]) -> None:
        if not lines:
            return
        now = time.time()
        self.lines += len(lines)
        bare = [plain(line) for line in lines]
        self._remember(source.process, source.stream, bare, now)
        self._to_file(source.process, source.stream, bare, now)
        if source.on_lines is not None:
            source.on_lines(bare)
        if self._overhear is not None:
            self._overhear(source.process, bare)
        self.writer.put(
            self._format.lines(source.process, source.role, source.stream, lines, now), len(lines)
        )

    def _remember(self, process: str, stream: str, lines: Sequence[str], now: float) -> None:
        last = self._last.get(process)
        if last is None:
            last = self._last.setdefault(process, deque(maxlen=self._ring))
        last.extend([(now, stream, line[:_RING_TEXT]) for line in lines[-self._ring :]])

    def _to_file(self, process: str, stream: str, lines: Sequence[str], now: float) -> None:
        if self._log_dir is None:
            return
        timed = f"{stamp(now)} "
        text = "".join([f"{'' if has_clock(line) else timed}{line}\n" for line in lines])
        with self._file_lock:
            file = self._files.get(process)
            try:
                if file is None:
                    if process in self._files or self._log_dir is None:
                        return
                    file = RotatingFile(self._log_dir / f"{process}.log", *self._file_limits)
                    self._files[process] = file
                file.write(text.encode("utf-8", "backslashreplace"))
                return
            except OSError as error:
                self._files[process] = None
                text = f"{self._log_dir / f'{process}.log'} ends here: {error.strerror or error}"
        self.writer.put(self._format.own("error", text, time.time()), 1, wait=False)
