"""The standard streams of every command: closed ones, full ones, and readers that have left."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO


def open_streams() -> None:
    """Stand-ins for standard streams that the caller closed (`>&-`): a file opened later would take their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    # Python has None where a stream was closed when it started.
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            stand_in = io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), "utf-8", "replace")
            setattr(sys, name, stand_in)


class OutputError(OSError):
    """Standard output does not take what is written: a full disk behind it, for one."""


class Output:
    """Standard output, with a failure that is told from one of any other file."""

    def __init__(self, plain: TextIO) -> None:
        self._plain = plain

    def write(self, text: str) -> int:
        """Write the text; OutputError where it cannot be, BrokenPipeError where nobody reads any more."""
        with _of_output():
            return self._plain.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As `write`."""
        with _of_output():
            self._plain.writelines(lines)

    def flush(self) -> None:
        """As `write`."""
        with _of_output():
            self._plain.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


class Errors(Output):
    """Standard error: where it takes nothing there is nobody to tell, and the exit code still says what was wrong."""

    def write(self, text: str) -> int:
        """Write the text, or not."""
        with contextlib.suppress(OSError):
            return self._plain.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As `write`."""
        with contextlib.suppress(OSError):
            self._plain.writelines(lines)

    def flush(self) -> None:
        """As `write`."""
        with contextlib.suppress(OSError):
            self._plain.flush()


@contextlib.contextmanager
def _of_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror or str(error)) from None


def write_no_more(stream: TextIO) -> None:
    """What is still in the stream's buffer goes nowhere: Python would complain of it at its exit."""
    with contextlib.suppress(OSError, ValueError):  # a test's stream has no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
