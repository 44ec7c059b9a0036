"""A log file that rotates by size and keeps a fixed number of old ones."""

from __future__ import annotations

import os
from pathlib import Path

MAX_BYTES = 64 << 20
KEEP = 5


class RotatingFile:
    """`NAME.log`, and `NAME.log.1` (newest) to `NAME.log.KEEP` (oldest)."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> None:
        """Opens for appending. OSError where the folder is missing or unwritable."""
        self._path = path
        self._max = max_bytes
        self._keep = keep
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        """Append whole lines; rotates before them where they would not fit. OSError where the disk refuses."""
        if self._size and self._size + len(data) > self._max:
            self._rotate()
        view = memoryview(data)
        while view:
            count = os.write(self._fd, view)
            self._size += count
            view = view[count:]

    def _rotate(self) -> None:
        os.close(self._fd)
        for number in range(self._keep, 0, -1):
            source = self._numbered(number - 1)
            if source.exists():
                source.replace(self._numbered(number))
        if self._keep == 0:
            self._path.unlink(missing_ok=True)
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def close(self) -> None:
        os.close(self._fd)
