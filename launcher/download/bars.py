"""Progress bars on a terminal: one for the whole, one for each file that is being fetched."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from launcher.download.progress import State


class Bars:
    """A live display; notes scroll above it."""

    def __init__(self, stream: IO[str]) -> None:
        self._console = Console(file=stream)
        self._progress: Progress | None = None
        self._whole: TaskID | None = None
        self._title = ""
        self._files: dict[str, TaskID] = {}

    def begin(self, title: str) -> None:
        self.end()
        self._title = title
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._whole = self._progress.add_task(title, total=None)
        self._progress.start()

    def show(self, state: State, *, last: bool = False) -> None:
        progress, whole = self._progress, self._whole
        if progress is None or whole is None:
            return
        for name in set(self._files) - set(state.active):
            progress.remove_task(self._files.pop(name))
        for name, (have, size) in state.active.items():
            if name not in self._files:
                # What was there already is no speed of this run.
                self._files[name] = progress.add_task(f"  {name[-40:]}", total=size, completed=have)
            progress.update(self._files[name], completed=have)
        title = f"{self._title}, {state.finished} of {state.files} files"
        progress.update(whole, description=title, completed=state.done, total=state.total)
        if last:
            progress.refresh()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            self._files.clear()
