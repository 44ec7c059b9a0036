"""Bytes of a pipe to lines of text: partial lines, very long lines, invalid UTF-8, progress bars."""

from __future__ import annotations

CUT = "[...]"
"""Ends a piece of a line too long to hold, and begins the next piece."""


class LineSplitter:
    """Splits one stream. Memory is bounded by `max_line` bytes and one chunk.

    A carriage return starts its line again, as on a terminal: of the states of a progress bar the last one counts,
    and while the bar has not ended its state is shown every `progress_s` seconds.
    """

    def __init__(self, max_line: int = 1 << 20, progress_s: float = 5.0) -> None:
        self._max = max_line
        self._progress_s = progress_s
        self._tail = b""
        self._continued = False
        self._shown = b""
        self._shown_at = 0.0

    def feed(self, data: bytes, now: float) -> list[str]:
        """The lines that `data` completes; `now` is in monotonic seconds."""
        head, newline, tail = data.rpartition(b"\n")
        lines: list[str] = []
        if newline:
            text = (self._tail + head).decode("utf-8", "backslashreplace")
            lines = text.split("\n")
            if "\r" in text:
                lines = [_last_state(line) for line in lines]
            if self._continued:
                lines[0] = CUT + lines[0]
                self._continued = False
            self._tail = tail
            self._shown = b""
        else:
            self._tail += tail
        if self._tail:
            if b"\r" in self._tail:
                self._progress(lines, now)
            if len(self._tail) > self._max:
                self._cut(lines)
        return lines

    def end(self) -> list[str]:
        """The unfinished last line, at the end of the stream; empty where there is none."""
        if not self._tail:
            return []
        line = _last_state(self._tail.decode("utf-8", "backslashreplace"))
        if self._continued:
            line = CUT + line
        self._tail = b""
        return [line] if line else []

    def _progress(self, lines: list[str], now: float) -> None:
        parts = self._tail.split(b"\r")
        states = [part for part in parts if part.strip()]
        state = states[-1] if states else b""
        # What was overwritten is gone; a return at the very end may still turn out to be half of "\r\n".
        self._tail = state if parts[-1] is state else state + b"\r"
        bar = len(states) > 1 or not parts[0]
        if bar and state and state != self._shown and now - self._shown_at >= self._progress_s:
            self._shown, self._shown_at = state, now
            lines.append(state.decode("utf-8", "backslashreplace"))

    def _cut(self, lines: list[str]) -> None:
        while len(self._tail) > self._max:
            end = self._max
            # Not inside a character: its continuation bytes are 0b10xxxxxx, at most three.
            while end > self._max - 4 and self._tail[end] & 0xC0 == 0x80:
                end -= 1
            piece = self._tail[:end].decode("utf-8", "backslashreplace") + CUT
            lines.append(CUT + piece if self._continued else piece)
            self._tail = self._tail[end:]
            self._continued = True


def _last_state(line: str) -> str:
    """What a terminal would show of a line in which carriage returns overwrite."""
    if "\r" not in line:
        return line
    for part in reversed(line.split("\r")):
        if part.strip():
            return part
    return ""
