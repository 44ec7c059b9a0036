"""What a disk does to a download: corruption, no room, no links, no permission."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from launcher.download import cache, manifest, transfer
from launcher.findings import Exit, LauncherError
from tests.download.conftest import SHARDS, Run, state
from tests.download.standin import COMMIT, MODEL, Hub


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


def test_a_disk_that_fills_up_keeps_what_came(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = os.write, 1_500_000

    def write(descriptor: int, data: memoryview) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(28, "No space left on device")
        left -= len(data)
        return real(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr("launcher.download.transfer.os.write", write)
        with pytest.raises(LauncherError) as caught:
            run()
    (finding,) = caught.value.findings
    assert finding.code == "disk-full"
    assert "goes on where it stopped" in finding.fix
    assert caught.value.exit_code == Exit.CHECK_FAILED
    assert state(tmp_path).torn
    run()
    assert state(tmp_path).complete
