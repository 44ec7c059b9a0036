"""Finds announced phases and fatal messages in a child's lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from launcher.plan.model import Phase


class LineWatch:
    """Give its lines to `see`; the callbacks run in the thread that calls it.

    A phase is announced once; a fatal line every time. Raises re.error for a pattern that is none.
    """

    def __init__(
        self,
        fatal: Iterable[str],
        phases: Iterable[Phase],
        on_fatal: Callable[[str], None],
        on_phase: Callable[[str, str], None],
    ) -> None:
        """`on_fatal(line)`, `on_phase(name, line)`."""
        self._fatal = [re.compile(pattern, re.M) for pattern in fatal]
        self._phases = [(phase.name, re.compile(phase.pattern, re.M)) for phase in phases]
        self._on_fatal = on_fatal
        self._on_phase = on_phase

    def see(self, lines: Sequence[str]) -> None:
        """Search a batch of lines."""
        if not self._fatal and not self._phases:
            return
        # One search over the batch is far cheaper than one per line, and nearly always finds nothing.
        text = "\n".join(lines)
        for name, pattern in list(self._phases):
            line = _first(pattern, text, lines)
            if line is not None:
                self._phases.remove((name, pattern))
                self._on_phase(name, line)
        for pattern in self._fatal:
            line = _first(pattern, text, lines)
            if line is not None:
                self._on_fatal(line)


def _first(pattern: re.Pattern[str], text: str, lines: Sequence[str]) -> str | None:
    if pattern.search(text) is None:
        return None
    return next((line for line in lines if pattern.search(line)), None)
