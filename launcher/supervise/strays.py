"""What Python and its libraries would write to stderr past the launcher's log: all of it becomes lines of that log.

Records of any `logging` logger (asyncio's and uvloop's exception handlers write there too), warnings, and exceptions
that nobody can catch: of threads and of finalizers. A log of JSON lines would be broken by a single traceback.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from launcher.findings import printable, short

if TYPE_CHECKING:
    # For types alone, as everything here must load in an instant.
    from .logpump import LogPump

EVERY_S = 10.0
"""One line for each kind of record in so many seconds; the next one says how many it stands for."""
LONGEST = 600
"""Characters of a line."""
FRAMES = 3
"""Innermost places of a traceback that a line names."""


class PumpHandler(logging.Handler):
    """Sends `logging` records through a pump as the launcher's own lines: one line each, and not too many alike."""

    def __init__(self, pump: LogPump, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.INFO)
        self._pump = pump
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        # The text may differ each time (asyncio puts addresses into it), so it is no part of the kind.
        error = record.exc_info[1] if record.exc_info else None
        kind = (record.name, type(error).__name__)
        now = self._clock()
        if now - self._said.get(kind, float("-inf")) < EVERY_S:
            self._held[kind] = self._held.get(kind, 0) + 1
            return
        self._said[kind] = now
        held = self._held.pop(kind, 0)
        try:
            text = record.getMessage()
        except Exception:  # arguments that do not fit the message: say what there is
            text = str(record.msg)
        text = one_line(text) + (f": {describe(error)}" if error is not None else "")
        self._pump.log(
            f"{record.name}: {text}{f' ({held} more like it before)' if held else ''}",
            record.levelname.lower(),
        )


def one_line(text: str) -> str:
    """The text without line ends and terminal codes, cut where it is long."""
    return printable(short(" ".join(text.split()), LONGEST))


def describe(error: BaseException, where: TracebackType | None = None) -> str:
    """An exception and where it came from, on one line."""
    frames = traceback.extract_tb(where or error.__traceback__)[-FRAMES:]
    places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    text = f"{type(error).__name__}: {one_line(str(error))}".removesuffix(": ")
    return f"{text} (at {places})" if places else text


@contextlib.contextmanager
def caught(pump: LogPump) -> Iterator[None]:
    """Within it nothing that Python itself has to say goes to stderr; all of it goes through the pump."""
    handler = PumpHandler(pump)
    root = logging.getLogger()
    # What others put there writes to stderr.
    before = root.handlers[:]
    root.handlers[:] = [handler]
    # For a logger that does not propagate and has no handler.
    last_resort, logging.lastResort = logging.lastResort, handler
    thread_hook, threading.excepthook = threading.excepthook, _of_thread
    unraisable_hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    show = warnings.showwarning
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        warnings.showwarning = show
        sys.unraisablehook = unraisable_hook
        threading.excepthook = thread_hook
        logging.lastResort = last_resort
        root.handlers[:] = before


def _of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        name = args.thread.name if args.thread is not None else "a thread"
        error = args.exc_value
        logging.getLogger("launcher").error("%s failed", name, exc_info=error)


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    if args.exc_value is not None:
        what = args.err_msg or "an exception that nobody could catch in"
        logging.getLogger("launcher").error("%s %r", what, args.object, exc_info=args.exc_value)
