"""`launcher download` as a job runs it: a process of its own, killed, stopped, doubled, offline."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.download import cache, harmony, snapshot, transfer
from tests.download.conftest import SHARDS, repo
from tests.download.standin import COMMIT, MODEL, Hub

ROOT = Path(__file__).resolve().parents[2]
DRAFT = "nvidia/gpt-oss-120b-Eagle3-v3"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(hub: Hub, tmp_path: Path, vocabulary: Path) -> Iterator[Start]:
    """Starts `launcher download --target h200-agg` on a cache of this test."""
    hub.repos[MODEL] = repo()
    hub.repos[DRAFT] = repo(200_000)
    hub.repos[DRAFT].commit = "e" * 40
    for name in ("tokenizer.json", "original/model.safetensors", "metal/model.bin"):
        del hub.repos[DRAFT].files[name]
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, stdout: int = subprocess.PIPE, **environ: str) -> subprocess.Popen[str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        env = (
            kept | {"HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url} | environ
        )
        command = [sys.executable, "-m", "launcher", "download", "--vocabulary", str(vocabulary), *arguments]
        if "--target" not in arguments:
            command += ["--target", "h200-agg"]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def states(tmp_path: Path) -> list[snapshot.SnapshotState]:
    hub_cache = tmp_path / "hf" / "hub"
    return [
        snapshot.inspect(MODEL, COMMIT, hub_cache, exclude=("metal/*", "original/*")),
        snapshot.inspect(DRAFT, "main", hub_cache, tokenizer=False),
    ]


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_everything_that_a_target_needs(start: Start, tmp_path: Path) -> None:
    process = start()
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert all(state.complete and state.exact for state in states(tmp_path))
    assert (tmp_path / "hf/harmony/o200k_base.tiktoken").stat().st_size == 3613922
    lines = out.splitlines()
    assert sum("complete" in line for line in lines) == 3
    assert "\x1b" not in out
    assert not err


def test_killed_half_way_it_goes_on_inside_the_file(start: Start, hub: Hub, tmp_path: Path) -> None:
    hub.repos[MODEL] = repo(8_000_000)
    size = len(hub.repos[MODEL].files[SHARDS[0]])
    etag = hub.repos[MODEL].etag(SHARDS[0])
    part = transfer.partial(cache.repo(tmp_path / "hf/hub", MODEL) / "blobs" / etag)
    hub.bytes_per_s = 4e6
    first = start()
    until(lambda: part.exists() and part.stat().st_size > 2_000_000)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    kept = part.stat().st_size
    assert states(tmp_path)[0].torn
    hub.bytes_per_s = 0
    hub.seen.clear()
    second = start()
    _, err = second.communicate(timeout=100)
    assert second.returncode == 0, err
    (request,) = hub.requests(etag)
    assert request.range == f"bytes={kept}-"
    assert request.sent[0] == size - kept
    assert states(tmp_path)[0].complete


def test_two_jobs_on_one_volume_fetch_once(start: Start, hub: Hub, tmp_path: Path) -> None:
    hub.bytes_per_s = 2e6
    jobs = [start(), start()]
    outs = []
    for job in jobs:
        out, err = job.communicate(timeout=100)
        assert job.returncode == 0, err
        outs.append(out)
    waited = [out for out in outs if "another download has it" in out]
    assert waited
    assert f"pid {jobs[0].pid}" in waited[0] or f"pid {jobs[1].pid}" in waited[0]
    for name in SHARDS:
        assert len(hub.requests(hub.repos[MODEL].etag(name))) == 1
    assert all(state.complete for state in states(tmp_path))


def test_a_killed_holder_is_followed_at_once(start: Start, hub: Hub, tmp_path: Path) -> None:
    hub.bytes_per_s = 5e5
    first = start()
    until(lambda: bool(hub.requests("X-Signature")))
    second = start()
    assert second.stdout is not None
    until(lambda: "another download has it" in second.stdout.readline())  # type: ignore[union-attr]
    os.killpg(first.pid, signal.SIGKILL)
    hub.bytes_per_s = 0
    _, err = second.communicate(timeout=100)
    assert second.returncode == 0, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_stops_and_keeps_what_it_has(
    start: Start, hub: Hub, tmp_path: Path, number: signal.Signals
) -> None:
    hub.bytes_per_s = 5e5
    process = start()
    until(lambda: bool(hub.requests("X-Signature")))
    before = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert time.monotonic() - before < 8
    assert "goes on from here" in out
    assert "Traceback" not in err
    assert states(tmp_path)[0].torn


def test_offline_checks_and_fetches_nothing(start: Start, hub: Hub, vocabulary: Path) -> None:
    process = start(HF_HUB_OFFLINE="1")
    _, err = process.communicate(timeout=100)
    assert process.returncode == 3
    assert err.count("error[model-missing]") == 2
    assert "Traceback" not in err
    assert not hub.seen
    assert start().wait(timeout=100) == 0
    hub.seen.clear()
    process = start(HF_HUB_OFFLINE="1")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "HF_HUB_OFFLINE is set, nothing was fetched" in out
    assert not hub.seen


def test_offline_without_the_vocabulary(start: Start) -> None:
    process = start("--vocabulary", "https://127.0.0.1:1/x", HF_HUB_OFFLINE="1")
    _, err = process.communicate(timeout=100)
    assert process.returncode == 3
    assert "error[harmony-missing]" in err


def test_a_placeholder_token_is_named_before_it_is_sent(start: Start, hub: Hub) -> None:
    process = start(HF_TOKEN="your-token")
    _, err = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "error[token-malformed]" in err
    assert not hub.seen


def test_a_gated_draft_head_leaves_the_model_whole(start: Start, hub: Hub, tmp_path: Path) -> None:
    hub.repos[DRAFT].gated = True
    process = start()
    _, err = process.communicate(timeout=100)
    assert process.returncode == 2
    assert f"{hub.url}/{DRAFT}" in err
    assert err.count("\n") == 1
    assert states(tmp_path)[0].complete


@pytest.mark.parametrize(("engine", "staged"), [("mocker", False), ("echo", True)])
def test_a_simulated_target_needs_at_most_the_vocabulary(
    start: Start, hub: Hub, tmp_path: Path, engine: str, staged: bool
) -> None:
    process = start("--target", "sim", "--engine", engine)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert f"{'no model' if staged else 'no model and no vocabulary'} to download" in out
    assert ("harmony vocabulary" in out) == staged
    assert harmony.staged({"HF_HOME": str(tmp_path / "hf")}).exists() == staged
    assert not hub.seen


def test_no_draft_head_where_nothing_speculates(start: Start, hub: Hub) -> None:
    assert start("--set", "speculative=null").wait(timeout=100) == 0
    assert not hub.requests(DRAFT)


def test_json_lines(start: Start) -> None:
    out, _ = start("--log-format", "json").communicate(timeout=100)
    lines = [json.loads(line) for line in out.splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    assert any(line.get("total") for line in lines)


def test_bars_on_a_terminal(start: Start, hub: Hub) -> None:
    hub.bytes_per_s = 3e6
    ours, theirs = pty.openpty()
    process = start(stdout=theirs, TERM="xterm", COLUMNS="120")
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=30) == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "━" in text
    assert SHARDS[0][-30:] in text
