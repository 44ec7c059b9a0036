"""A disk that fills while a run uses it is said once, stands in /status, and is named where the run ends by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from launcher.observe.closing import closing
from launcher.observe.disks import LEAST, Disks, free_bytes
from launcher.observe.history import History
from launcher.plan.model import Role
from launcher.supervise.events import Failure


def test_a_full_disk_is_said_once_and_when_it_has_room_again() -> None:
    said: list[tuple[str, str]] = []
    room: dict[str, int | None] = {"/run/x": LEAST - 1, "/logs": LEAST}
    disks = Disks(
        Path("/run/x"),
        Path("/logs"),
        lambda text, level="info": said.append((level, text)),
        lambda path: room[str(path)],
    )
    asyncio.run(disks.look())
    asyncio.run(disks.look())
    assert list(disks.troubles) == ["--state-dir"]
    assert [level for level, _ in said] == ["error"]
    assert said[0][1].startswith("warning[state-disk-low]: the disk of /run/x is full (255 KiB free)")
    room["/run/x"] = None  # not known: nothing new
    asyncio.run(disks.look())
    assert len(said) == 1
    room |= {"/run/x": 1 << 30, "/logs": 0}
    asyncio.run(disks.look())
    assert list(disks.troubles) == ["--log-dir"]
    assert [level for level, _ in said] == ["error", "info", "error"]


def test_a_run_that_fails_meanwhile_names_it() -> None:
    disks = Disks(Path("/run/x"), None, lambda text, level="info": None, lambda path: 0)
    asyncio.run(disks.look())
    failure = Failure("decode-1", Role.DECODE, 3, "exit code 0; the restart budget is spent", ())
    line, level = closing(4, History(), failure, "", 1.0, disks.told())
    assert level == "error"
    assert "the restart budget is spent; the disk of /run/x is full (0 KiB free): workers cannot" in line


def test_free_bytes_of_a_real_folder(tmp_path: Path) -> None:
    assert (free_bytes(tmp_path) or 0) > LEAST
    assert free_bytes(tmp_path / "not there") is None
