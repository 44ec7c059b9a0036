"""The live view on real pseudo-terminals: what a person sees, at any size, and what is left when it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pyte
import pytest

from launcher.observe.view.screen import Line, Screen
from launcher.supervise.logwriter import LogWriter


class Terminal:
    """A pseudo-terminal that somebody watches."""

    def __init__(self, columns: int = 80, rows: int = 12, *, watching: bool = True) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self.emulate = True
        self._hung_up = False
        self._lock = threading.Lock()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if watching:
            self._thread.start()

    def close(self) -> None:
        # The reader first: after the close, its descriptor's number may be another terminal's.
        os.close(self.slave)
        self._thread.join(10)
        os.close(self.master)

    def hang_up(self) -> None:
        """As when its window is closed: whoever still writes gets EIO."""
        self._hung_up = True
        os.write(self.slave, b"\n")  # wakes the reader
        self._thread.join(10)
        os.close(self.master)

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self.screen.resize(rows, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _watch(self) -> None:
        while not self._hung_up:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            with self._lock:
                self.raw += data
                if self.emulate:
                    self.stream.feed(data)

    def seen(self) -> list[str]:
        """Every row, those scrolled off too, without the empty ones at the end."""
        with self._lock:
            scrolled = [
                "".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top
            ]
            rows = [row.rstrip() for row in [*scrolled, *self.screen.display]]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def until(self, found: Callable[[list[str]], bool], limit_s: float = 10.0) -> list[str]:
        deadline = time.monotonic() + limit_s
        while not found(rows := self.seen()):
            assert time.monotonic() < deadline, "\n".join(rows)
            time.sleep(0.02)
        return rows


def frame(*texts: str) -> Callable[[int, int], Sequence[Line]]:
    return lambda columns, rows: [Line(text, len(text)) for text in texts]


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal()
    yield found
    found.close()


def test_lines_scroll_above_the_frame(terminal: Terminal) -> None:
    screen = Screen(frame("-----", "status"), terminal.slave, interval_s=0.05)
    writer = LogWriter(screen.pipe)
    for number in range(40):
        writer.put(f"line {number}\n", 1)
    rows = terminal.until(lambda rows: rows[-3:] == ["line 39", "-----", "status"])
    assert rows == [*(f"line {number}" for number in range(40)), "-----", "status"]
    writer.close()
    screen.close()
    rows = terminal.until(lambda rows: "status" not in rows)
    assert rows == [f"line {number}" for number in range(40)]


def test_the_frame_is_drawn_anew_in_its_place(terminal: Terminal) -> None:
    text = ["one"]
    screen = Screen(
        lambda columns, rows: [Line(each, len(each)) for each in text], terminal.slave, interval_s=0.02
    )
    terminal.until(lambda rows: rows == ["one"])
    text[:] = ["two", "three"]
    terminal.until(lambda rows: rows == ["two", "three"])
    text[:] = ["four"]
    terminal.until(lambda rows: rows == ["four"])
    screen.close()
    terminal.until(lambda rows: rows == [])


def test_an_unchanged_frame_writes_nothing(terminal: Terminal) -> None:
    screen = Screen(frame("same"), terminal.slave, interval_s=0.01)
    terminal.until(lambda rows: rows == ["same"])
    written = len(terminal.raw)
    time.sleep(0.2)
    assert len(terminal.raw) == written
    screen.close()


def test_nothing_about_the_terminal_needs_to_be_put_back(terminal: Terminal) -> None:
    """So that even SIGKILL leaves it usable: no raw mode, no alternate screen, no hidden cursor, no scroll region."""
    screen = Screen(frame("x"), terminal.slave, interval_s=0.02)
    os.write(screen.pipe, b"hello\n")
    terminal.until(lambda rows: rows == ["hello", "x"])
    assert termios.tcgetattr(terminal.slave) == terminal.before
    for sequence in (b"?1049h", b"?47h", b"?25l", b"?7l", b"\x1b[r", b"?1h"):
        assert sequence not in terminal.raw
    assert terminal.raw.count(b"?2026h") == terminal.raw.count(b"?2026l")
    screen.close()


@pytest.mark.parametrize(("columns", "rows"), [(30, 12), (200, 50), (80, 4), (10, 3), (1, 1)])
def test_any_size_at_any_time(terminal: Terminal, columns: int, rows: int) -> None:
    sizes = []

    def adapted(columns: int, rows: int) -> Sequence[Line]:
        sizes.append((columns, rows))
        return [Line("=" * (columns - 1), columns - 1)] * 5

    screen = Screen(adapted, terminal.slave, interval_s=0.02)
    terminal.until(lambda rows: rows == ["=" * 79] * 5)
    terminal.resize(columns, rows)
    deadline = time.monotonic() + 10
    while (columns, rows) not in sizes:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.write(screen.pipe, b"still here\n")
    terminal.until(lambda rows: b"still here" in terminal.raw)
    screen.close()
    assert not screen._thread.is_alive()


def test_a_frame_that_fails_is_named_and_the_log_goes_on(terminal: Terminal) -> None:
    def broken(columns: int, rows: int) -> Sequence[Line]:
        raise KeyError("workers")

    screen = Screen(broken, terminal.slave, interval_s=0.02)
    os.write(screen.pipe, b"hello\n")
    terminal.until(lambda rows: rows == ["hello", "view: KeyError: 'workers'"])
    screen.close()


def test_an_unfinished_line_waits_for_its_end(terminal: Terminal) -> None:
    screen = Screen(frame("status"), terminal.slave, interval_s=0.02)
    os.write(screen.pipe, b"first half")
    terminal.until(lambda rows: rows == ["status"])
    os.write(screen.pipe, b", second half\nunfinished")
    terminal.until(lambda rows: rows == ["first half, second half", "status"])
    screen.close()
    terminal.until(lambda rows: rows == ["first half, second half", "unfinished"])


def test_a_flood_passes_whole_and_fast(terminal: Terminal) -> None:
    terminal.emulate = False  # the emulator is a thousand times slower than a terminal
    screen = Screen(frame("status"), terminal.slave, interval_s=0.05)
    writer = LogWriter(screen.pipe)
    block = b"".join(
        b"%06d some words of a log line that is as long as most lines are\n" % n for n in range(1000)
    )
    began = time.monotonic()
    for _ in range(20):
        writer.put(block.decode(), 1000)
    writer.close(30.0)
    screen.close(30.0)
    assert writer.dropped == 0
    assert time.monotonic() - began < 30.0
    terminal.until(lambda rows: terminal.raw.count(b"some words") == 20_000, 30.0)


def test_a_terminal_that_takes_nothing_stops_nobody() -> None:
    """As after Ctrl-S: lines are dropped after a while, and whoever writes them goes on."""
    terminal = Terminal(watching=False)
    screen = Screen(frame("status"), terminal.slave, interval_s=0.05)
    writer = LogWriter(screen.pipe, limit=1 << 16, patience_s=0.1)
    longest = 0.0
    for _ in range(40):
        began = time.monotonic()
        writer.put("x" * 99 + "\n" * 100, 100)
        writer.put(("y" * 999 + "\n") * 10, 10)
        longest = max(longest, time.monotonic() - began)
    assert writer.dropped > 0
    assert longest < 2.0
    began = time.monotonic()
    writer.close(0.2)
    screen.close(0.2)
    assert time.monotonic() - began < 2.0
    os.close(terminal.master)  # wakes the thread that is stuck in write(2)


def test_a_terminal_that_is_gone_stops_nobody() -> None:
    terminal = Terminal()
    screen = Screen(frame("status"), terminal.slave, interval_s=0.05)
    writer = LogWriter(screen.pipe)
    terminal.hang_up()
    for _ in range(100):
        writer.put("line\n" * 1000, 1000)
    writer.close(5.0)
    screen.close(5.0)
    assert not screen._thread.is_alive()
    assert writer.dropped == 0
