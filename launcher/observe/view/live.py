"""The live view of one deployment: its /status page, drawn below the log."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launcher.observe.view.screen import Line, Screen

LOOK_S = 1.0
"""Between looks at the deployment; each costs some 20 ms with the drawing."""
LEAST = (40, 8)
"""Columns and rows below which there is no room for a frame."""
SHARE = 2 / 3
"""Of the terminal's rows, for the frame at most; the rest stays for the log."""


class View:
    """Give `screen.pipe` to the log writer, run `follow` in the event loop, and `close` after the log writer."""

    def __init__(self, fd: int = 1) -> None:
        self._page: Mapping[str, Any] | None = None
        self._made_of: Mapping[str, Any] | None = None
        self._made_for = (0, 0)
        self._lines: Sequence[Line] = ()
        self._colour = "NO_COLOR" not in os.environ
        self.screen = Screen(self.lines, fd)

    async def follow(self, status: Callable[[], Mapping[str, Any]]) -> None:
        """Look at the deployment until cancelled."""
        while True:
            # What goes wrong here must not end a deployment: then the frame stands still.
            with contextlib.suppress(Exception):
                self._page = status()
            await asyncio.sleep(LOOK_S)

    def close(self) -> None:
        """Take the frame away."""
        self._page = None
        self.screen.close()

    def lines(self, columns: int, rows: int) -> Sequence[Line]:
        """The frame. Called in the screen's thread."""
        page = self._page
        if page is None or columns < LEAST[0] or rows < LEAST[1]:
            return ()
        if page is not self._made_of or self._made_for != (columns, rows):
            self._lines = render(page, columns, rows, colour=self._colour)
            self._made_of, self._made_for = page, (columns, rows)
        return self._lines


def render(page: Mapping[str, Any], columns: int, rows: int, *, colour: bool) -> list[Line]:
    """A status page as lines for a terminal of that size."""
    # Here, not above: rich takes 50 ms to import, and only a terminal needs it.
    from rich.cells import cell_len
    from rich.console import Console
    from rich.rule import Rule
    from rich.text import Text

    from launcher.observe.view.board import board, rows_besides

    console = Console(
        file=io.StringIO(),
        width=columns - 1,  # a full last column makes some terminals wrap
        height=rows,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
    )
    most = max(2, int(rows * SHARE) - 1 - rows_besides(page))
    with console.capture() as capture:
        console.print(Rule(style="dim"), board(page, most=most, columns=columns))
    texts = capture.get().rstrip("\n").split("\n")[: int(rows * SHARE)]
    return [Line(text, cell_len(Text.from_ansi(text).plain)) for text in texts]
