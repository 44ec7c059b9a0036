"""The disks that a run writes to: on a full one workers end again and again, and do not say why."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launcher.findings import Finding, Severity
from launcher.supervise.logs import Log

LOOK_S = 5.0
LEAST = 256 << 10
"""Bytes: some dozens of registrations and an incident."""


@dataclass(frozen=True, slots=True)
class Folder:
    """One that is written to while the run lasts."""

    path: Path
    option: str
    code: str
    why: str


class Disks:
    """Looks again and again; `troubles` are warnings of `/status`."""

    def __init__(
        self, run_dir: Path, log_dir: Path | None, log: Log, free: Callable[[Path], int | None] | None = None
    ) -> None:
        """`free`: the bytes that can still be written where a folder is, None where that is not known."""
        self.troubles: dict[str, Finding] = {}
        self._log = log
        self._free = free or free_bytes
        self._folders = [
            Folder(
                run_dir,
                "--state-dir",
                "state-disk-low",
                "workers cannot register, and end; no incident can be written",
            )
        ]
        if log_dir is not None:
            self._folders.append(
                Folder(log_dir, "--log-dir", "logs-readonly", "the log files there have ended")
            )

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """One look at each. In a thread: a file system that is away answers late."""
        for folder in self._folders:
            self._judge(folder, await asyncio.to_thread(self._free, folder.path))

    def told(self) -> str:
        """The troubles as a clause of a line; empty where there are none."""
        return "; ".join(f"{each.what}: {each.why}" for each in self.troubles.values())

    def _judge(self, folder: Folder, free: int | None) -> None:
        known = self.troubles.get(folder.option)
        if free is not None and free < LEAST:
            if known is None:
                found = self.troubles[folder.option] = Finding(
                    code=folder.code,
                    what=f"the disk of {folder.path} is full ({free >> 10} KiB free)",
                    severity=Severity.WARNING,
                    where=folder.option,
                    why=folder.why,
                    fix="free some space there",
                )
                self._log(found.line(), "error")
        elif known is not None and free is not None:
            del self.troubles[folder.option]
            self._log(f"the disk of {folder.path} has room again ({free >> 20} MiB free)")


def free_bytes(path: Path) -> int | None:
    """What an ordinary user can still write where `path` is; 0 where no file can be made any more."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    if found.f_files and not found.f_favail:
        return 0
    return found.f_bavail * found.f_frsize
