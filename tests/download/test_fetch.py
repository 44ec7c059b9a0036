"""One model from the stand-in hub into a cache: whole, resumed, verified, refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from launcher.download import cache, credentials, fetch, manifest, snapshot, transfer
from launcher.download.orders import Options, Order, Outcome
from launcher.download.progress import Lines
from launcher.findings import Exit, LauncherError
from tests.download.conftest import COMMIT, MODEL, Hub, Repo

SHARDS = ("model-00000-of-00001.safetensors", "model-00001-of-00001.safetensors")
Run = Callable[..., Outcome]


def shard(size: int, seed: int) -> bytes:
    """A safetensors file with one tensor of `size` bytes that no compression makes small."""
    header = json.dumps({f"t{seed}": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + hashlib.shake_128(bytes([seed])).digest(size)


def repo(size: int = 3_000_000) -> Repo:
    """A model laid out as the 120b is, a few MB small."""
    index = {"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}
    return Repo(
        {
            "config.json": b"{}",
            "tokenizer.json": b"{}" * 200_000,
            "model.safetensors.index.json": json.dumps(index).encode(),
            SHARDS[0]: shard(size, 1),
            SHARDS[1]: shard(size // 2, 2),
            "original/model.safetensors": shard(size, 3),
            "metal/model.bin": b"m" * 500_000,
            "empty.txt": b"",
        }
    )


@pytest.fixture
def run(hub: Hub, tmp_path: Path) -> Run:
    """Fetches the model of `hub` into a cache of this test."""
    hub.repos[MODEL] = repo()

    def fetch_it(
        model: str = MODEL, revision: str = COMMIT, *, out: io.StringIO | None = None, **values: Any
    ) -> Outcome:
        environ = {"HOME": str(tmp_path)} | values.pop("environ", {})
        options = Options(
            hub_cache=tmp_path / "hub",
            cache_where="HF_HOME",
            endpoint=hub.url,
            credential=credentials.find(environ),
            pace=0.01,
            **values,
        )
        order = Order(model, revision, ("metal/*", "original/*"), True, "model.id")
        return fetch.run(order, options, Lines(out or io.StringIO()), threading.Event())

    return fetch_it


def state(tmp_path: Path, revision: str = COMMIT) -> snapshot.SnapshotState:
    return snapshot.inspect(MODEL, revision, tmp_path / "hub", exclude=("metal/*", "original/*"))


def test_a_model_comes_whole_without_what_no_engine_reads(run: Run, hub: Hub, tmp_path: Path) -> None:
    outcome = run()
    found = state(tmp_path)
    assert found.complete
    assert found.exact
    assert outcome.folder == found.folder
    names = {str(path.relative_to(outcome.folder)) for path in outcome.folder.rglob("*") if path.is_file()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors.index.json", "empty.txt", *SHARDS}
    assert (outcome.folder / SHARDS[0]).read_bytes() == hub.repos[MODEL].files[SHARDS[0]]
    assert not found.torn
    assert len(hub.requests("/api/")) == 1


def test_the_cache_is_what_huggingface_hub_reads(run: Run, tmp_path: Path) -> None:
    from huggingface_hub import snapshot_download, try_to_load_from_cache

    outcome = run()
    kwargs: dict[str, Any] = {"cache_dir": str(tmp_path / "hub"), "local_files_only": True}
    assert snapshot_download(MODEL, revision=COMMIT, **kwargs) == str(outcome.folder)
    # Dynamo's frontend asks for `main`, also where the target pins a commit.
    assert snapshot_download(MODEL, **kwargs) == str(outcome.folder)
    found = try_to_load_from_cache(MODEL, SHARDS[0], cache_dir=str(tmp_path / "hub"), revision="main")
    assert found == str(outcome.folder / SHARDS[0])


def test_what_huggingface_hub_fetched_is_verified_and_kept(run: Run, hub: Hub, tmp_path: Path) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(
        MODEL,
        revision=COMMIT,
        cache_dir=str(tmp_path / "hub"),
        endpoint=hub.url,
        ignore_patterns=["metal/*", "original/*"],
        token=False,
    )
    assert state(tmp_path).complete
    assert not state(tmp_path).exact
    outcome = run()
    assert outcome.received == 0
    assert state(tmp_path).exact


def test_a_second_run_asks_nobody(run: Run, hub: Hub) -> None:
    run()
    hub.seen.clear()
    assert run().received == 0
    assert not hub.seen
    assert run(verify=True).received == 0
    assert len(hub.seen) == 1


def test_a_branch_is_resolved_and_named(run: Run, tmp_path: Path) -> None:
    assert run(revision="main").commit == COMMIT
    assert state(tmp_path, "main").complete
    assert (tmp_path / "hub/models--openai--gpt-oss-120b/refs/main").read_text() == COMMIT


def test_main_of_another_download_is_left_alone_and_said(run: Run, hub: Hub, tmp_path: Path) -> None:
    first = run(revision="main").commit
    hub.repos[MODEL].commit = "c" * 40
    outcome = run(revision="c" * 40)
    assert [finding.code for finding in outcome.findings] == ["revision-skew"]
    assert state(tmp_path, "main").commit == first


def test_the_token_goes_to_the_hub_and_not_to_the_content_server(run: Run, hub: Hub) -> None:
    run(environ={"HF_TOKEN": "hf_right"})
    assert {seen.authorization for seen in hub.requests("/resolve/")} == {"Bearer hf_right"}
    assert {seen.authorization for seen in hub.seen if "X-Signature" in seen.path} == {""}


def test_a_torn_connection_goes_on_where_it_broke(run: Run, hub: Hub, tmp_path: Path) -> None:
    etag = hub.repos[MODEL].etag(SHARDS[0])
    hub.fault(etag, times=2, after=1_000_000)
    out = io.StringIO()
    run(out=out)
    requests = hub.requests(etag)
    assert [bool(seen.range) for seen in requests] == [False, True, True]
    # What arrived is kept: nothing is sent twice but what was in flight when it broke.
    assert sum(seen.sent[0] for seen in requests) < len(hub.repos[MODEL].files[SHARDS[0]]) + 2_000_000
    assert "trying again" in out.getvalue()
    assert state(tmp_path).complete


def test_a_server_that_ignores_ranges_starts_the_file_over(run: Run, hub: Hub, tmp_path: Path) -> None:
    hub.ignore_range = True
    hub.fault(hub.repos[MODEL].etag(SHARDS[0]), after=1_000_000)
    run()
    assert state(tmp_path).complete


@pytest.mark.parametrize("asked", ["2", "date", "limit"])
def test_429_is_waited_for_as_long_as_it_asks(run: Run, hub: Hub, asked: str) -> None:
    headers = {
        "2": {"Retry-After": "2"},
        "date": {"Retry-After": formatdate(time.time() + 3, usegmt=True)},
        "limit": {"RateLimit": '"api";r=0;t=2'},
    }[asked]
    hub.fault("/api/models", status=429, headers=headers)
    out = io.StringIO()
    before = time.monotonic()
    run(out=out)
    assert time.monotonic() - before >= 1.9
    assert "429: the hub asks to wait" in out.getvalue()


def test_429_on_a_file(run: Run, hub: Hub, tmp_path: Path) -> None:
    hub.fault(f"resolve/{COMMIT}/config.json", times=2, status=429, headers={"Retry-After": "0"})
    run()
    assert state(tmp_path).complete


def test_a_hub_that_is_down_is_given_up_with_what_it_said(run: Run, hub: Hub) -> None:
    hub.fault("/api/models", times=99, status=503)
    with pytest.raises(LauncherError) as caught:
        run()
    assert caught.value.findings[0].code == "hub-unreachable"
    assert "503" in caught.value.findings[0].what
    assert caught.value.exit_code == Exit.PROCESS_FAILED
    assert len(hub.seen) == len(transfer.DELAYS_S) + 1


def test_nobody_listens(run: Run, hub: Hub) -> None:
    hub.close()
    with pytest.raises(LauncherError) as caught:
        run()
    assert caught.value.findings[0].code == "hub-unreachable"
    assert "refused" in caught.value.findings[0].what


def test_a_login_page_in_place_of_the_hub(run: Run, hub: Hub) -> None:
    hub.fault("/api/models", status=200, headers={"Content-Type": "text/html"})
    hub.repos[MODEL].files = {}
    with pytest.raises(LauncherError) as caught:
        run()
    assert caught.value.findings[0].code in ("hub-nonsense", "model-empty")


@pytest.mark.parametrize(
    ("change", "environ", "code", "words"),
    [
        ({"token": "hf_right"}, {}, "token-missing", ["HF_TOKEN (not set)", "no such file", MODEL]),
        (
            {"token": "hf_right"},
            {"HF_TOKEN": "hf_wrong"},
            "token-rejected",
            ["Invalid credentials", "expired"],
        ),
        ({"token": "hf_right"}, {"HF_TOKEN": "hf_other"}, "model-unknown", [MODEL]),
        ({"gated": True}, {}, "model-gated", ["no token was sent", f"/{MODEL}", "accept the terms"]),
        ({"gated": True}, {"HF_TOKEN": "hf_other"}, "model-gated", ["has no access", f"/{MODEL}"]),
        ({"commit": "d" * 40}, {}, "revision-unknown", [COMMIT, "commits/main"]),
    ],
)
def test_refusals_say_what_to_do(
    run: Run, hub: Hub, change: dict[str, Any], environ: dict[str, str], code: str, words: list[str]
) -> None:
    for name, value in change.items():
        setattr(hub.repos[MODEL], name, value)
    with pytest.raises(LauncherError) as caught:
        run(environ=environ)
    (finding,) = caught.value.findings
    assert finding.code == code
    assert caught.value.exit_code == Exit.USAGE
    for word in words:
        assert word in finding.line()
    assert "hf_wrong" not in finding.line()
    assert "hf_other" not in finding.line()


def test_a_corrupt_file_in_the_cache_is_found_and_replaced(run: Run, tmp_path: Path, hub: Hub) -> None:
    outcome = run()
    victim = (outcome.folder / SHARDS[0]).resolve()
    content = bytearray(victim.read_bytes())
    content[1_000_000] ^= 1
    victim.write_bytes(content)  # the size stays, the time does not
    out = io.StringIO()
    assert run(out=out).received == len(content)
    assert "corrupt" in out.getvalue()
    assert victim.read_bytes() == hub.repos[MODEL].files[SHARDS[0]]


def test_silent_corruption_is_found_when_asked(run: Run, hub: Hub) -> None:
    outcome = run()
    victim = (outcome.folder / SHARDS[0]).resolve()
    times = victim.stat()
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run().received == 0
    assert run(verify=True).received == len(content)


def test_content_that_hashes_wrong_is_fetched_once_more_then_refused(
    run: Run, hub: Hub, tmp_path: Path
) -> None:
    etag = hub.repos[MODEL].etag(SHARDS[0])
    good = hub.repos[MODEL].files[SHARDS[0]]
    hub.fault(etag, times=1, replace=good[:-1] + b"?")
    run()
    assert state(tmp_path).complete
    for path in (tmp_path / "hub").rglob(etag):
        path.unlink()
    hub.fault(etag, times=2, replace=good[:-1] + b"?")
    with pytest.raises(LauncherError) as caught:
        run()
    assert caught.value.findings[0].code == "download-corrupt"
    assert caught.value.exit_code == Exit.CHECK_FAILED
    assert not state(tmp_path).complete


def test_a_partial_file_of_a_crashed_machine_does_not_survive(run: Run, hub: Hub, tmp_path: Path) -> None:
    etag = hub.repos[MODEL].etag(SHARDS[0])
    blobs = tmp_path / "hub/models--openai--gpt-oss-120b/blobs"
    blobs.mkdir(parents=True)
    (blobs / (etag + transfer.SUFFIX)).write_bytes(b"\0" * 1_000_000)  # blocks that never reached the disk
    run()
    assert [seen.range for seen in hub.requests(etag)] == ["bytes=1000000-", ""]
    assert state(tmp_path).complete


def test_what_does_not_fit_is_refused_before_the_first_byte(
    run: Run, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)

    def small(_: object) -> os.statvfs_result:
        values = list(real)
        values[4] = (1 << 30) // real.f_frsize + 100  # f_bavail: the reserve and 100 blocks
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", small)
    with pytest.raises(LauncherError) as caught:
        run()
    (finding,) = caught.value.findings
    assert finding.code == "disk-full"
    assert "MB more" in finding.what
    assert caught.value.exit_code == Exit.CHECK_FAILED
    assert not hub.requests("/resolve/")


def test_same_content_under_two_names_comes_once(run: Run, hub: Hub, tmp_path: Path) -> None:
    hub.repos[MODEL].files["copy.safetensors"] = hub.repos[MODEL].files[SHARDS[0]]
    run()
    assert len(hub.requests(hub.repos[MODEL].etag(SHARDS[0]))) == 1
    assert state(tmp_path).complete


def test_a_volume_without_links_gets_the_files_themselves(
    run: Run, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "symlink", refuse)
    outcome = run()
    assert not (outcome.folder / SHARDS[0]).is_symlink()
    assert state(tmp_path).complete
    hub.seen.clear()
    assert run(verify=True).received == 0


def test_a_name_that_leads_out_of_the_folder_is_refused(run: Run, hub: Hub) -> None:
    hub.repos[MODEL].files["../../evil"] = b"x"
    with pytest.raises(LauncherError) as caught:
        run()
    assert caught.value.findings[0].code == "hub-nonsense"


def test_a_folder_that_cannot_be_written_to(run: Run, tmp_path: Path) -> None:
    (tmp_path / "hub").write_text("a file")
    with pytest.raises(LauncherError) as caught:
        run()
    assert caught.value.findings[0].code == "cache-unwritable"
    assert f"uid {os.getuid()}" in caught.value.findings[0].why


def test_a_torn_manifest_is_no_manifest(run: Run, tmp_path: Path) -> None:
    run()
    repo_folder = cache.repo(tmp_path / "hub", MODEL)
    path = repo_folder / manifest.FOLDER / f"{COMMIT}.json"
    path.write_bytes(path.read_bytes()[:100])
    assert manifest.read(repo_folder, COMMIT) is None
    assert state(tmp_path).complete
    assert run().received == 0
    assert state(tmp_path).exact
