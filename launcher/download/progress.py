"""Progress of a download: bars on a terminal, a plain line now and then in a job's log, or JSON lines."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol

from launcher.download.verdict import human

LINE_EVERY_S = 10.0
LINE_EVERY_SHARE = 0.1
RATE_WINDOW_S = 20.0


class Counter:
    """What the threads have done so far; every method may be called from any of them."""

    def __init__(self, total: int, files: int) -> None:
        self.total = total
        self.files = files
        self._lock = threading.Lock()
        self._done = 0
        self._received = 0
        self._finished = 0
        self._active: dict[str, list[int]] = {}

    def begin(self, name: str, size: int, have: int) -> None:
        """A file of `size` bytes begins, of which `have` are on disk already."""
        with self._lock:
            self._active[name] = [have, size]
            self._done += have

    def add(self, name: str, count: int, *, received: bool = True) -> None:
        """Bytes came in; a negative count takes back what turned out wrong."""
        with self._lock:
            self._done += count
            if received and count > 0:
                self._received += count
            if name in self._active:
                self._active[name][0] += count

    def finish(self, name: str) -> None:
        """The file is whole and in its place."""
        with self._lock:
            self._finished += 1
            self._active.pop(name, None)

    def state(self) -> State:
        with self._lock:
            active = {name: (have, size) for name, (have, size) in self._active.items()}
            return State(self._done, self.total, self._received, self._finished, self.files, active)


@dataclass(frozen=True, slots=True)
class State:
    """A moment of a download; bytes unless said otherwise."""

    done: int
    total: int
    received: int
    """From the network, in this run."""
    finished: int
    files: int
    active: dict[str, tuple[int, int]]
    """File to what it has and its size."""


class Reporter(Protocol):
    """How a download shows itself."""

    def begin(self, title: str) -> None: ...

    def show(self, state: State, *, last: bool = False) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


class Rate:
    """Bytes per second over the last seconds, from a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._points: list[tuple[float, int]] = []

    def update(self, received: int) -> float:
        now = self._clock()
        self._points.append((now, received))
        while len(self._points) > 2 and now - self._points[0][0] > RATE_WINDOW_S:
            self._points.pop(0)
        (start, first), (end, last) = self._points[0], self._points[-1]
        return (last - first) / (end - start) if end > start else 0.0


class Lines:
    """One line each 10 s or 10 %, whichever is first: for logs."""

    def __init__(
        self,
        stream: IO[str] | None = None,
        *,
        as_json: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._json = as_json
        self._clock = clock
        self._title = ""
        self._rate = Rate(clock)
        self._shown_at = float("-inf")
        self._shown_share = 0.0

    def begin(self, title: str) -> None:
        self._title = title
        self._rate = Rate(self._clock)
        self._shown_at, self._shown_share = float("-inf"), 0.0

    def show(self, state: State, *, last: bool = False) -> None:
        rate = self._rate.update(state.received)
        share = state.done / state.total if state.total else 1.0
        due = self._clock() - self._shown_at >= LINE_EVERY_S or share - self._shown_share >= LINE_EVERY_SHARE
        if not (due or last):
            return
        self._shown_at, self._shown_share = self._clock(), share
        parts = [
            f"{human(state.done)} of {human(state.total)} ({share:.0%})",
            f"{state.finished} of {state.files} files",
        ]
        if rate > 0 and not last:
            parts += [f"{human(rate)}/s", f"{duration((state.total - state.done) / rate)} left"]
        self._write(
            f"{self._title}: {', '.join(parts)}", done=state.done, total=state.total, files=state.finished
        )

    def note(self, text: str) -> None:
        self._write(text)

    def end(self) -> None:
        pass

    def _write(self, text: str, **fields: Any) -> None:
        if self._json:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            text = json.dumps(
                {"time": stamp, "level": "INFO", "process": "download", "message": text, **fields}
            )
        # A job's log is a pipe: unflushed lines would come all at once at its end.
        print(text, file=self._stream, flush=True)


def duration(seconds: float) -> str:
    """A time for a person, such as `2 min 51 s`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def choose(stream: IO[str], *, as_json: bool) -> Reporter:
    """Bars on a terminal, lines elsewhere."""
    if as_json or not stream.isatty():
        return Lines(stream, as_json=as_json)
    from launcher.download.bars import Bars

    return Bars(stream)
