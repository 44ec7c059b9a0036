"""What must be gone when the run is over, kept where the init process finds it after our death."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

SHM = "/dev/shm/"


class Custody:
    """Folders and shared memory segments to remove at the end.

    The list lies in anonymous shared memory, so that the parent of a fork sees what the child noted, whatever ended
    the child.
    """

    def __init__(self) -> None:
        self._fd = os.memfd_create("launcher-custody", os.MFD_CLOEXEC)
        self._noted: set[str] = set()

    def folder(self, path: str | Path) -> None:
        """Remove this folder with all it holds."""
        self._note(f"folder {path}")

    def segments(self, paths: Iterable[str]) -> None:
        """Remove these files of /dev/shm, unless some living process still maps them."""
        for path in paths:
            if path.startswith(SHM):
                self._note(f"segment {path}")

    def _note(self, line: str) -> None:
        if line not in self._noted:
            self._noted.add(line)
            os.write(self._fd, line.encode("utf-8", "surrogateescape") + b"\n")

    def clean(self) -> list[str]:
        """Remove everything noted that is still there; returns what could not be removed. Never raises."""
        size = os.fstat(self._fd).st_size
        text = os.pread(self._fd, size, 0).decode("utf-8", "surrogateescape")
        failed: list[str] = []
        segments: set[str] = set()
        for line in text.splitlines():
            kind, _, path = line.partition(" ")
            if not os.path.lexists(path):
                continue
            if kind == "segment":
                segments.add(path)
            else:
                shutil.rmtree(path, ignore_errors=True)
                if os.path.lexists(path):
                    failed.append(path)
        return failed + drop_segments(segments)


def drop_segments(paths: Iterable[str]) -> list[str]:
    """Remove those of these files of /dev/shm that no living process maps; returns what could not be removed."""
    there = {path for path in paths if os.path.lexists(path)}
    failed = []
    if there:
        for path in there - mapped(int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError:
                failed.append(path)
    return failed


def mapped(pids: Iterable[int]) -> set[str]:
    """The files of /dev/shm that these processes map (some 10 ms for a process with thousands of mappings)."""
    found: set[str] = set()
    for pid in pids:
        try:
            with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="surrogateescape") as maps:
                for line in maps:
                    start = line.find(SHM)
                    if start >= 0 and not line.endswith(" (deleted)\n"):
                        found.add(line[start:].rstrip("\n"))
        except OSError:
            continue
    return found
