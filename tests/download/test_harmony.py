"""The vocabulary: found, right, or one finding that says what is wrong; staged from any source."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path

import pytest

from launcher.download import harmony, stage
from launcher.download.progress import Lines
from launcher.findings import Exit, LauncherError
from tests.download.standin import Hub, Repo


@pytest.fixture
def home(tmp_path: Path, vocabulary: Path) -> dict[str, str]:
    """An environment whose HF_HOME has the vocabulary staged."""
    path = tmp_path / "harmony" / harmony.FILE
    path.parent.mkdir()
    path.write_bytes(vocabulary.read_bytes())
    return {"HF_HOME": str(tmp_path)}


def found(environ: dict[str, str]) -> str:
    """The finding's code and text, with `ok` for none."""
    result = harmony.find(environ)
    assert (result.path is None) == (result.finding is not None)
    return "ok" if result.finding is None else f"{result.finding.code}: {result.finding.line()}"


def test_named_by_the_variable(vocabulary: Path) -> None:
    result = harmony.find({harmony.VARIABLE: str(vocabulary.parent)})
    assert result.path == vocabulary
    assert result.env() == {harmony.VARIABLE: str(vocabulary.parent)}


def test_staged(home: dict[str, str], tmp_path: Path) -> None:
    result = harmony.find(home)
    assert result.env() == {harmony.VARIABLE: str(tmp_path / "harmony")}


def test_nowhere(tmp_path: Path) -> None:
    text = found({"HF_HOME": str(tmp_path)})
    assert text.startswith("harmony-missing")
    assert "launcher download" in text
    assert harmony.find({"HF_HOME": str(tmp_path)}).env() == {}


def test_a_wrong_hash_shows_the_expected_one(home: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "harmony" / harmony.FILE
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    assert found(home) == "ok"
    path.write_bytes(content)
    text = found(home)
    assert text.startswith("harmony-hash")
    assert harmony.SHA256 in text
    named = found({harmony.VARIABLE: str(path.parent)})
    assert named.startswith("harmony-hash")
    assert harmony.SHA256 in named


def test_a_wrong_variable_counts_though_a_right_file_is_staged(home: dict[str, str]) -> None:
    text = found(home | {harmony.VARIABLE: "/nowhere"})
    assert text.startswith("harmony-folder")
    assert "unset TIKTOKEN_ENCODINGS_BASE" in text
    assert "launcher download" not in text


@pytest.mark.parametrize(
    ("value", "code", "word"),
    [
        ("", "harmony-folder", "is empty"),
        ("https://x/y", "harmony-folder", "not a folder"),
        ("FOLDER", "harmony-folder", "does not exist"),
        ("FILE", "harmony-folder", "wants its folder"),
        ("POINTER", "harmony-hash", "Git LFS pointer"),
        ("DIRECTORY", "harmony-unreadable", "is not a file"),
        ("FIFO", "harmony-unreadable", "is not a file"),
        ("SHORT", "harmony-hash", "instead of 3613922"),
    ],
)
def test_what_can_be_wrong(tmp_path: Path, vocabulary: Path, value: str, code: str, word: str) -> None:
    path = tmp_path / harmony.FILE
    if value == "FILE":
        value = str(vocabulary)
    elif value.isupper():
        if value == "POINTER":
            path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        elif value == "DIRECTORY":
            path.mkdir()
        elif value == "FIFO":
            os.mkfifo(path)
        elif value == "SHORT":
            path.write_bytes(b"IQ== 0\n")
        value = str(tmp_path)
    text = found({harmony.VARIABLE: value, "HF_HOME": str(tmp_path / "hf")})
    assert text.startswith(code)
    assert word in text


def test_the_verdict_is_kept_until_the_file_changes(home: dict[str, str]) -> None:
    harmony.find(home)
    before = harmony._sha256.cache_info().misses
    start = time.perf_counter()
    for _ in range(100):
        assert found(home) == "ok"
    assert harmony._sha256.cache_info().misses == before
    assert time.perf_counter() - start < 1


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HF_HOME": str(tmp_path / "hf")}


def put(environ: dict[str, str], source: str) -> Path:
    return stage.vocabulary(environ, source, Lines(), threading.Event(), pace=0.01)


def test_from_a_file_or_its_folder(environ: dict[str, str], vocabulary: Path) -> None:
    path = put(environ, str(vocabulary))
    assert path == harmony.staged(environ)
    assert found(environ) == "ok"
    path.unlink()
    put(environ, vocabulary.parent.as_uri())
    assert found(environ) == "ok"


def test_from_an_address_that_stumbles(environ: dict[str, str], vocabulary: Path, hub: Hub) -> None:
    hub.repos["a/b"] = Repo({"o200k_base.tiktoken": vocabulary.read_bytes()}, commit="f" * 40)
    hub.fault("o200k", status=429, headers={"Retry-After": "0"})
    hub.fault(hub.repos["a/b"].etag("o200k_base.tiktoken"), after=100_000)
    put(environ, f"{hub.url}/a/b/resolve/main/o200k_base.tiktoken")
    assert found(environ) == "ok"


def test_an_address_that_answers_something_else(environ: dict[str, str], hub: Hub) -> None:
    with pytest.raises(LauncherError) as caught:
        put(environ, f"{hub.url}/a/b/resolve/main/x")
    assert caught.value.findings[0].code == "harmony-unreachable"
    hub.fault("login", status=200)
    with pytest.raises(LauncherError) as caught:
        put(environ, f"{hub.url}/login")
    assert caught.value.findings[0].code == "harmony-hash"
    assert caught.value.exit_code == Exit.CHECK_FAILED
    assert not harmony.staged(environ).exists()


@pytest.mark.parametrize(
    "source", ["ftp://x/y", "http://", "https://[::1", "/nowhere", "http://127.0.0.1:1/x"]
)
def test_sources_that_lead_nowhere(environ: dict[str, str], source: str) -> None:
    with pytest.raises(LauncherError) as caught:
        put(environ, source)
    assert caught.value.findings[0].code in ("harmony-unreachable", "harmony-unreadable", "hub-address")


def test_a_staged_file_that_is_wrong_is_replaced(home: dict[str, str], vocabulary: Path) -> None:
    harmony.staged(home).write_bytes(b"torn")
    put(home, str(vocabulary))
    assert found(home) == "ok"


def test_a_wrong_variable_fails_though_the_file_is_staged(environ: dict[str, str], vocabulary: Path) -> None:
    with pytest.raises(LauncherError) as caught:
        put(environ | {harmony.VARIABLE: "/nowhere"}, str(vocabulary))
    assert caught.value.findings[0].code == "harmony-folder"
    assert found(environ) == "ok"


def test_a_name_that_cannot_be_resolved_is_tried_three_times(environ: dict[str, str]) -> None:
    out = io.StringIO()
    with pytest.raises(LauncherError) as caught:
        stage.vocabulary(environ, "http://nosuch.invalid/x", Lines(out), threading.Event(), pace=0.01)
    said = out.getvalue().splitlines()
    assert len(said) == 2
    for number, line in enumerate(said, 1):
        assert line.startswith("harmony vocabulary: the name nosuch.invalid cannot be resolved (")
        assert line.endswith(f"({number} of 2)")
    finding = caught.value.findings[0]
    assert caught.value.exit_code == Exit.PROCESS_FAILED
    assert finding.what.startswith("cannot fetch the harmony vocabulary: the name nosuch.invalid cannot")
    assert finding.what.endswith(", 3 times")
    assert finding.what.count("harmony vocabulary") == 1


def test_an_address_that_stays_away_says_so_once(environ: dict[str, str], hub: Hub) -> None:
    hub.fault("o200k", times=99, status=503)
    with pytest.raises(LauncherError) as caught:
        put(environ, f"{hub.url}/o200k")
    what = caught.value.findings[0].what
    assert what == "cannot fetch the harmony vocabulary: the server answered 503, 9 times"
