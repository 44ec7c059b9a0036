"""A process that stands still is out of routing, and back when it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.discovery import file
from launcher.discovery.file import FileDiscovery


def keeper(root: Path) -> tuple[FileDiscovery, list[Path]]:
    """A folder with the entries of decode-0 (the first two) and decode-1."""
    paths = []
    for bucket, number, body in (
        ("instances", 7, {"instance_id": 7, "transport": {"tcp": "127.0.0.1:24001/x"}}),
        ("mdc", 7, {"instance_id": 7}),
        ("instances", 8, {"instance_id": 8, "transport": {"tcp": "127.0.0.1:24002/x"}}),
    ):
        path = root / "v1" / bucket / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body))
        paths.append(path)
    found = FileDiscovery(root, dict, lambda message, level="info": None)
    found.joined("decode-0", [24001])
    found.joined("decode-1", [24002])
    found.keep()
    return found, paths


def present(paths: list[Path]) -> list[bool]:
    return [path.exists() for path in paths]


def test_it_is_out_until_it_goes_on(tmp_path: Path) -> None:
    discovery, paths = keeper(tmp_path)
    texts = [path.read_text() for path in paths]
    assert discovery.stand_aside("decode-0")
    discovery.keep()  # does not take them for lost
    assert present(paths) == [False, False, True]
    discovery.stand_back("decode-0")
    assert [path.read_text() for path in paths] == texts
    discovery.stand_back("decode-0")
    discovery.keep()
    assert present(paths) == [True, True, True]


def test_where_it_dies_meanwhile_it_stays_out(tmp_path: Path) -> None:
    discovery, paths = keeper(tmp_path)
    discovery.stand_aside("decode-0")
    discovery.withdraw("decode-0")
    discovery.stand_back("decode-0")
    discovery.keep()
    assert present(paths) == [False, False, True]
    assert set(discovery.owners()) == {8}


def test_what_a_living_process_removed_itself_stays_away_while_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    discovery, paths = keeper(tmp_path)
    well = {"decode-0": False}
    discovery._well = lambda name: well[name]
    for path in paths[:2]:
        path.unlink()
    discovery.keep()
    assert present(paths) == [False, False, True], "so soon it may be its owner's doing"
    monkeypatch.setattr(file, "REMOVED_S", 0.0)
    discovery.keep()
    assert present(paths) == [False, False, True], "its health page is gone, too: it ends"
    well["decode-0"] = True
    discovery.keep()
    assert present(paths) == [True, True, True], "it lives and is well: it was somebody else"


def test_what_expired_comes_back_at_once(tmp_path: Path) -> None:
    discovery, paths = keeper(tmp_path)
    discovery._well = lambda name: False
    for entry in discovery._entries.values():
        entry.touched -= file.TTL_S  # all stood still, this process too
    for path in paths:
        path.unlink()
    discovery.keep()
    assert present(paths) == [True, True, True]
