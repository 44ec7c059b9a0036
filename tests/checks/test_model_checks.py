"""Model, draft head, token and harmony vocabulary: what is wrong on disk is said before anything starts."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from launcher.checks import model, reach
from launcher.checks.base import run_checks
from launcher.download import harmony
from launcher.findings import Finding, Severity
from tests.checks.subjects import codes, machine_for, plan_of, resolved

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
COMMIT = "b5c939de8f754692c1647ca79fbf85e8c1e70f8a"
DRAFT = "0123456789abcdef0123456789abcdef01234567"
VOCABULARY = Path(__file__).resolve().parents[3] / "shared" / "harmony" / "o200k_base.tiktoken"


def weights(path: Path) -> None:
    """A whole safetensors file of one small tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")


def put(home: Path, name: str, commit: str, *, tokenizer: bool = True) -> Path:
    """A model in a hub cache: two shards, an index, a config."""
    repo = home / "hub" / ("models--" + name.replace("/", "--"))
    folder = repo / "snapshots" / commit
    folder.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for shard in shards:
        weights(folder / shard)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {f"w{number}": shard for number, shard in enumerate(shards)}})
    )
    (folder / "config.json").write_text("{}")
    if tokenizer:
        (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache with model, draft head and vocabulary, all whole."""
    put(tmp_path, "openai/gpt-oss-120b", COMMIT)
    put(tmp_path, "nvidia/gpt-oss-120b-Eagle3-v3", DRAFT, tokenizer=False)
    return tmp_path


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    """The folder of the right vocabulary."""
    if not VOCABULARY.exists():
        pytest.skip("the harmony vocabulary is not on this machine")
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    shutil.copy(VOCABULARY, folder / harmony.FILE)
    return folder


def said(environ: dict[str, str], *sets: str, target: str = "h200-agg") -> list[Finding]:
    subject, machine = resolved(target, *sets), machine_for(target)
    plan, _ = plan_of(subject, machine)
    return list(run_checks(model.CHECKS, subject, plan, machine, environ))


def one(found: list[Finding], code: str) -> Finding:
    codes(found)
    matching = [finding for finding in found if finding.code == code]
    assert matching, found
    return matching[0]


def env(home: Path, **more: str) -> dict[str, str]:
    return {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HOME": str(home), **more}


def about_model(found: list[Finding]) -> set[str]:
    return {code for code in codes(found) if not code.startswith("harmony")}


def test_all_is_there(home: Path, vocabulary: Path) -> None:
    found = said(env(home, TIKTOKEN_ENCODINGS_BASE=str(vocabulary)), f"model.draft.revision={DRAFT}")
    assert not found


def test_nothing_is_there(tmp_path: Path) -> None:
    found = said(env(tmp_path))
    missing = [finding for finding in found if finding.code == "model-missing"]
    assert {finding.what.split()[0] for finding in missing} == {
        "openai/gpt-oss-120b",
        "nvidia/gpt-oss-120b-Eagle3-v3",
    }
    assert all(finding.severity is ERROR for finding in missing)
    assert "launcher download --target h200-agg (without HF_HUB_OFFLINE" in missing[0].fix


def test_a_draft_that_is_not_used_is_not_missed(home: Path) -> None:
    shutil.rmtree(home / "hub" / "models--nvidia--gpt-oss-120b-Eagle3-v3")
    assert "model-missing" in codes(said(env(home)))
    assert "model-missing" not in codes(said(env(home), "speculative=null"))


def test_a_torn_download_and_a_pointer(home: Path) -> None:
    folder = home / "hub" / "models--openai--gpt-oss-120b" / "snapshots" / COMMIT
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"\x00" * 30)
    (folder / "model-00002-of-00002.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )
    found = said(env(home))
    assert "model-00001-of-00002" in one(found, "model-incomplete").what
    assert "model-00002-of-00002" in one(found, "model-lfs-pointer").what


def test_a_missing_shard(home: Path) -> None:
    folder = home / "hub" / "models--openai--gpt-oss-120b" / "snapshots" / COMMIT
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors (missing)" in one(said(env(home)), "model-incomplete").what


def test_another_revision_is_there(home: Path) -> None:
    finding = one(said(env(home), "model.revision=" + "a" * 40), "model-revision")
    assert COMMIT[:12] in finding.what


def test_leftovers_of_an_interrupted_download(home: Path) -> None:
    blobs = home / "hub" / "models--openai--gpt-oss-120b" / "blobs"
    blobs.mkdir()
    (blobs / "abc.incomplete").write_bytes(b"x")
    assert one(said(env(home)), "model-leftovers").severity is INFO


def test_a_folder_instead_of_the_cache(home: Path, tmp_path: Path) -> None:
    folder = home / "hub" / "models--openai--gpt-oss-120b" / "snapshots" / COMMIT
    assert not about_model(said(env(home), f"model.path={folder}"))
    assert "model-missing" in codes(said(env(home), f"model.path={tmp_path}/nowhere"))


def test_a_revision_that_moves(home: Path) -> None:
    found = said(env(home))
    finding = one(found, "model-unpinned")
    assert finding.severity is INFO
    assert f"model.draft.revision={DRAFT}" in finding.fix
    assert "model-unpinned" not in codes(said(env(home), f"model.draft.revision={DRAFT}"))
    shutil.rmtree(home / "hub")
    assert one(said(env(home)), "model-unpinned").severity is WARNING


def test_tokens(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "tcp_error", lambda *_: None)
    online = env(home, HF_HUB_OFFLINE="0")
    assert one(said(online), "model-online").severity is INFO
    assert "model-online" not in codes(said(env(home)))
    assert one(said({**online, "HF_TOKEN": "hf_..."}), "token-malformed").severity is WARNING
    shutil.rmtree(home / "hub" / "models--openai--gpt-oss-120b")
    assert "HF_TOKEN (not set)" in one(said(online), "token-missing").where
    assert one(said({**online, "HF_TOKEN": "hf_..."}), "token-malformed").severity is ERROR
    good = codes(said({**online, "HF_TOKEN": "hf_abcdefghijklmnop"}))
    assert not good & {"token-missing", "token-malformed"}


# Harmony --------------------------------------------------------------------------------------------


def test_a_vocabulary_of_the_wrong_hash_shows_the_expected_one(home: Path, vocabulary: Path) -> None:
    path = vocabulary / harmony.FILE
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    finding = one(said(env(home, TIKTOKEN_ENCODINGS_BASE=str(vocabulary))), "harmony-hash")
    assert finding.severity is ERROR
    assert harmony.SHA256 in finding.what


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"short", "harmony-hash"), (None, "harmony-folder"), ("folder", "harmony-unreadable")],
)
def test_a_vocabulary_that_is_none(home: Path, tmp_path: Path, content: object, code: str) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    if isinstance(content, bytes):
        (folder / harmony.FILE).write_bytes(content)
    elif content == "folder":
        (folder / harmony.FILE).mkdir()
    found = one(said(env(home, TIKTOKEN_ENCODINGS_BASE=str(folder))), code)
    assert found.severity is ERROR


def test_the_targets_own_variable_counts(home: Path, tmp_path: Path) -> None:
    found = said(env(home), f"frontend.env.TIKTOKEN_ENCODINGS_BASE={tmp_path}/nowhere")
    assert "nowhere" in one(found, "harmony-folder").where


def test_no_vocabulary(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "HF_HUB_OFFLINE forbids the network" in one(said(env(home)), "harmony-missing").what
    online = env(home, HF_HUB_OFFLINE="0")
    monkeypatch.setattr(reach, "tcp_error", lambda *_: "connection refused")
    finding = one(said(online), "harmony-missing")
    assert finding.severity is ERROR
    assert "connection refused" in finding.what
    # Downloadable: no error, but not passed in silence either.
    monkeypatch.setattr(reach, "tcp_error", lambda *_: None)
    assert one(said(online), "harmony-missing").severity is WARNING


def test_the_simulator_needs_none_and_the_echo_does(home: Path) -> None:
    assert not said(env(home), "engine.kind=mocker")
    assert codes(said(env(home), "engine.kind=echo")) == {"harmony-missing"}


def test_every_code_is_seen_here() -> None:
    text = Path(__file__).read_text()
    for check in model.CHECKS:
        for code in check.codes:
            assert f'"{code}"' in text, code
