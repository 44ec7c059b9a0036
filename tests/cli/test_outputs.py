"""A place for results that cannot be written is one finding, exit 2, before the work that makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher import outputs
from launcher.cli import main
from launcher.findings import LauncherError

BENCH = ["bench", "--target", "h200-disagg", "--aiperf", "/bin/true", "--out"]
SIMULATE = ["simulate", "--target", "h200-disagg", "--out"]
MAKE = ["trace", "make", "--target", "h200-disagg", "--out"]
RENDER = ["render", "--target", "h200-disagg", "--write"]


@pytest.mark.parametrize("words", [BENCH, SIMULATE, RENDER, MAKE], ids=lambda words: words[0])
@pytest.mark.parametrize("place", ["{file}", "{file}/below", "/proc/x", "", "x" * 300])
def test_a_place_that_cannot_be_written(
    words: list[str],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    for work in ("bench.sweep.measure", "cli.simulate._predict", "bench.trace.make.make"):
        monkeypatch.setattr(f"launcher.{work}", never)
    taken = tmp_path / "file"
    taken.write_text("kept")
    if words is MAKE and place == "{file}":
        place = str(tmp_path)  # a file may be replaced, a folder not
    assert main([*words, place.format(file=taken)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert f"(set in {words[-1]})" in err
    assert taken.read_text() == "kept"


def test_a_device_is_not_replaced_by_a_file() -> None:
    with pytest.raises(LauncherError, match="/dev/null is no regular file"):
        outputs.file(Path("/dev/null"), "--out")


def test_a_sweep_whose_record_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.json").mkdir()
    assert main([*BENCH, str(tmp_path)]) == 2
    assert "cannot write" in capsys.readouterr().err
