"""A process that stands still is out of routing, and back when it goes on."""

from __future__ import annotations

import json
from pathlib import Path

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
    found = FileDiscovery(root, dict, lambda text: None)
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
