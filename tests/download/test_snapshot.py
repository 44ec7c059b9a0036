"""Completeness of a model on disk, judged from files alone."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import simmodel
from launcher.download import cache, snapshot, verdict, weights
from launcher.download.snapshot import Fault
from launcher.findings import Severity
from tests.download.standin import COMMIT, MODEL

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4792272488\n"


def tensors(size: int = 1000) -> bytes:
    header = json.dumps({"__metadata__": {"format": "pt"}, "t": {"data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole snapshot in a cache that another tool filled: no manifest of ours."""
    repo = cache.repo(tmp_path, MODEL)
    path = repo / "snapshots" / COMMIT
    path.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT + "\n")
    (path / "config.json").write_text("{}")
    (path / "tokenizer.json").write_text("{}")
    names = {f"t{number}": f"model-0000{number}-of-00002.safetensors" for number in (0, 1, 2)}
    (path / weights.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))
    for name in names.values():
        (path / name).write_bytes(tensors())
    return path


def look(folder: Path, revision: str = "main", *, tokenizer: bool = True) -> snapshot.SnapshotState:
    return snapshot.inspect(MODEL, revision, folder.parents[2], tokenizer=tokenizer)


def test_whole(folder: Path) -> None:
    state = look(folder)
    assert state.complete
    assert (state.commit, state.folder, state.files, state.exact) == (COMMIT, folder, 6, False)
    assert not list(verdict.findings(state, where="model.id", fix="launcher download"))
    assert look(folder, COMMIT).complete


def test_a_shard_that_the_index_names_is_missing(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").unlink()
    state = look(folder)
    assert state.missing == ("model-00001-of-00002.safetensors",)
    (finding,) = verdict.findings(state, where="model.id", fix="launcher download")
    assert finding.code == "model-incomplete"
    assert "model-00001-of-00002.safetensors" in finding.what


def test_a_link_to_a_blob_that_is_gone(folder: Path) -> None:
    path = folder / "model-00001-of-00002.safetensors"
    path.unlink()
    path.symlink_to("../../blobs/" + "0" * 64)
    (problem,) = look(folder).problems
    assert problem.fault is Fault.MISSING
    assert "blob is gone" in problem.text()


@pytest.mark.parametrize("keep", [0, 5, 30, 900])
def test_a_torn_shard_is_seen_in_its_own_header(folder: Path, keep: int) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    (problem,) = look(folder).problems
    assert problem.fault is Fault.SIZE


def test_git_lfs_pointers(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.write_bytes(POINTER)
    state = look(folder)
    assert {problem.fault for problem in state.problems} == {Fault.POINTER}
    (finding,) = verdict.findings(state, where="model.id", fix="launcher download")
    assert finding.code == "model-lfs-pointer"
    assert "git lfs pull" in finding.fix


def test_a_tokenizer_as_a_pointer(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(POINTER)
    assert [problem.name for problem in look(folder).problems] == ["tokenizer.json"]


def test_the_index_itself_as_a_pointer(folder: Path) -> None:
    (folder / weights.INDEX).write_bytes(POINTER)
    assert [problem.fault for problem in look(folder).problems] == [Fault.POINTER]


def test_shards_without_an_index(folder: Path) -> None:
    (folder / weights.INDEX).unlink()
    assert look(folder).missing == (weights.INDEX,)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"weight_map": 3}', b'{"weight_map": {"a": "../../x"}}', b"\xff", b"[" * 100_000],
)
def test_a_broken_index(folder: Path, content: bytes) -> None:
    (folder / weights.INDEX).write_bytes(content)
    state = look(folder)
    assert not state.complete
    assert state.problems[0].name == weights.INDEX


def test_a_draft_head_needs_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert look(folder).missing == ("tokenizer.json",)
    assert look(folder, tokenizer=False).complete


def test_an_unknown_revision_names_what_is_there(folder: Path) -> None:
    state = look(folder, "d" * 40)
    assert state.folder is None
    (finding,) = verdict.findings(state, where="model.revision", fix="launcher download")
    assert finding.code == "model-revision"
    assert COMMIT[:12] in finding.what


@pytest.mark.parametrize("ref", ["", "../../..", "main", "x" * 40])
def test_a_ref_that_is_no_commit(folder: Path, ref: str) -> None:
    (folder.parents[1] / "refs" / "main").write_text(ref)
    assert look(folder).commit is None


@pytest.mark.parametrize("revision", ["../refs/main", "/etc/passwd", "a/../../x", "no\0de"])
def test_a_revision_cannot_leave_its_folder(folder: Path, revision: str) -> None:
    assert look(folder, revision).folder is None


def test_partial_downloads_are_counted(folder: Path) -> None:
    (folder.parents[1] / "blobs" / "ab.1234.incomplete").write_bytes(b"12345")
    state = look(folder)
    assert state.torn == (("ab.1234.incomplete", 5),)
    (finding,) = verdict.findings(state, where="", fix="")
    assert (finding.code, finding.severity) == ("model-leftovers", Severity.INFO)
    assert not list(verdict.findings(state, where="", fix="", running=True))


def test_nothing_there(tmp_path: Path) -> None:
    state = snapshot.inspect(MODEL, "main", tmp_path / "none")
    (finding,) = verdict.findings(state, where="model.id", fix="launcher download")
    assert finding.code == "model-missing"


def test_a_local_folder(folder: Path, tmp_path: Path) -> None:
    assert snapshot.inspect_folder(MODEL, folder).complete
    (finding,) = verdict.findings(snapshot.inspect_folder(MODEL, tmp_path / "no"), where="model.path", fix="")
    assert finding.code == "model-missing"
    assert "no folder" in finding.what


def test_the_simulated_model_resolves() -> None:
    state = snapshot.inspect(simmodel.MODEL_NAME, "main", simmodel.HUB_CACHE)
    assert state.commit == simmodel.REVISION
    assert state.missing == ("model.safetensors",)


def test_a_folder_in_place_of_a_file(folder: Path) -> None:
    path = folder / "config.json"
    path.unlink()
    path.mkdir()
    (problem,) = look(folder).problems
    assert problem.fault is Fault.UNREADABLE


@given(st.binary(max_size=200))
def test_any_bytes_as_a_shard(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(content)
    with contextlib.suppress(weights.Unreadable):
        assert weights.safetensors_size(path) >= 8


def test_looking_imports_nothing_heavy() -> None:
    code = (
        "import sys, launcher.download.needs, launcher.download.harmony, launcher.download.credentials;"
        "print(sorted({'huggingface_hub', 'httpx', 'rich', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"
