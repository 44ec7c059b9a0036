"""The small parts: cache folders, token, lock, progress, waits, what a target needs."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from pathlib import Path

import pytest

from launcher.download import cache, credentials, disk, lock, manifest, needs, progress, refusal
from launcher.findings import LauncherError
from launcher.target.overrides import parse
from launcher.target.resolve import Resolved, resolve
from tests.download.standin import COMMIT, MODEL

ENVIRONS: list[dict[str, str]] = [
    {},
    {"HF_HOME": "/data/hf"},
    {"HF_HOME": "~/hf"},
    {"HF_HOME": "$BASE/hf", "BASE": "/b"},
    {"XDG_CACHE_HOME": "/x"},
    {"HF_HOME": "/data/hf", "HF_HUB_CACHE": "/elsewhere"},
    {"HUGGINGFACE_HUB_CACHE": "~/old"},
]


@pytest.mark.parametrize("environ", ENVIRONS)
def test_folders_agree_with_huggingface_hub(environ: dict[str, str]) -> None:
    import subprocess
    import sys

    environ = {"HOME": "/home/somebody", "PATH": os.environ["PATH"]} | environ
    code = "from huggingface_hub import constants as c; print(c.HF_HOME, c.HF_HUB_CACHE)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(cache.home(environ)), str(cache.hub(environ))]


@pytest.mark.parametrize(
    ("value", "blocked"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)]
)
def test_offline(value: str, blocked: bool) -> None:
    assert (cache.offline({"HF_HUB_OFFLINE": value}) == "HF_HUB_OFFLINE") is blocked


def test_where_a_token_is_looked_for(tmp_path: Path) -> None:
    environ = {"HF_HOME": str(tmp_path)}
    none = credentials.find(environ)
    assert none.token is None
    assert none.searched == (
        "HF_TOKEN (not set)",
        "HUGGING_FACE_HUB_TOKEN (not set)",
        f"{tmp_path}/token (no such file)",
    )
    (tmp_path / "token").write_text("hf_file\n")
    assert credentials.find(environ).token == "hf_file"
    assert credentials.find(environ | {"HF_TOKEN": ""}).where == str(tmp_path / "token")
    both = credentials.find(environ | {"HF_TOKEN": " hf_env\n"})
    assert (both.token, both.where, both.finding) == ("hf_env", "HF_TOKEN", None)
    assert "hf_env" not in repr(both)


@pytest.mark.parametrize(
    "token", ["your-token", "hf_xxxxxxxx", "<token>", '"hf_abc"', "hf_a b", "hf_ä", "hf_a\nhf_b"]
)
def test_a_token_that_is_none(token: str) -> None:
    found = credentials.find({"HF_TOKEN": token})
    assert found.finding is not None
    assert found.finding.code == "token-malformed"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "99999999999999"}, refusal.MAX_WAIT_S),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "²"}, None),
        ({"ratelimit": '"api";r=0;t=55'}, 55),
        ({"ratelimit": '"api";r=3;t=55'}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert refusal.wait_s(headers) == seconds


def held(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def holder(host: str, beat: int = 1) -> bytes:
    return json.dumps({"host": host, "pid": 7, "since": 0, "nonce": "x", "beat": beat}).encode()


def test_the_lock_of_a_dead_process_here_is_taken_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held(path, holder(os.uname().nodename))
    said: list[str] = []
    with lock.hold(path, waiting=said.append, stop=threading.Event()):
        assert json.loads(path.read_bytes())["pid"] == os.getpid()
    assert not said
    assert path.read_bytes() == b""


def test_the_lock_of_another_node_is_waited_for_until_it_stands_still(tmp_path: Path) -> None:
    """On a volume whose flock each node grants by itself."""
    path = tmp_path / "lock"
    held(path, holder("node-b"))
    said: list[str] = []

    def beats(text: str) -> None:
        said.append(text)
        if len(said) < 5:
            held(path, holder("node-b", len(said) + 1))

    with lock.hold(path, waiting=beats, stop=threading.Event(), poll_s=0.02, stale_s=0.3):
        pass
    assert len(said) > 5
    assert said[0].startswith("pid 7 on node-b, since ")


def test_one_at_a_time_among_threads_and_the_beat_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "BEAT_S", 0.02)
    path = tmp_path / "lock"
    inside = 0
    worst = 0

    def work() -> None:
        nonlocal inside, worst
        with lock.hold(path, waiting=lambda _: None, stop=threading.Event(), poll_s=0.01):
            inside += 1
            worst = max(worst, inside)
            first = json.loads(path.read_bytes())["beat"]
            time.sleep(0.1)
            assert json.loads(path.read_bytes())["beat"] > first
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert worst == 1


def test_waiting_for_the_lock_can_be_ended(tmp_path: Path) -> None:
    path, stop = tmp_path / "lock", threading.Event()
    with (
        lock.hold(path, waiting=lambda _: None, stop=stop),
        pytest.raises(lock.Stopped),
        lock.hold(path, waiting=lambda _: stop.set(), stop=stop, poll_s=0.01),
    ):
        pass


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[]", b'{"pid": "x"}', b'{"pid": 1, "host": 2, "since": 1e300}']
)
def test_a_lock_file_with_anything_in_it(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "lock"
    held(path, text)
    lock.describe(text)
    with lock.hold(path, waiting=lambda _: None, stop=threading.Event(), poll_s=0.01, stale_s=0.05):
        pass


def test_lines_come_every_ten_seconds_or_tenth() -> None:
    now = [0.0]
    out = io.StringIO()
    lines = progress.Lines(out, clock=lambda: now[0])
    counter = progress.Counter(1000_000_000, 2)
    lines.begin("model")
    counter.begin("a", 900_000_000, 0)
    for _ in range(100):
        now[0] += 1
        counter.add("a", 2_000_000)
        lines.show(counter.state())
    counter.add("a", 700_000_000)
    counter.finish("a")
    lines.show(counter.state())
    lines.show(counter.state(), last=True)
    shown = out.getvalue().splitlines()
    assert len(shown) == 12
    assert shown[5] == "model: 102.0 MB of 1.0 GB (10%), 0 of 2 files, 2.0 MB/s, 7 min 29 s left"
    assert shown[-1] == "model: 900.0 MB of 1.0 GB (90%), 1 of 2 files"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.6, "1 min 0 s"), (171, "2 min 51 s"), (7300, "2 h 1 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text


@pytest.mark.parametrize(
    ("name", "out"),
    [
        ("metal/model.bin", True),
        ("metal/a/b", True),
        ("metal.txt", False),
        ("original/model.safetensors", True),
        ("config.json", False),
    ],
)
def test_excluded_as_huggingface_hub_does(name: str, out: bool) -> None:
    from huggingface_hub.utils import filter_repo_objects

    patterns = ["metal/*", "original/"]
    assert manifest.excluded(name, patterns) is out
    assert (not list(filter_repo_objects([name], ignore_patterns=patterns))) is out


def test_a_full_disk_while_writing(tmp_path: Path) -> None:
    assert (
        disk.write_error(OSError(28, "No space left on device"), tmp_path, "HF_HOME").findings[0].code
        == "disk-full"
    )
    assert disk.free(tmp_path / "not" / "yet" / "there") == disk.free(tmp_path)
    with pytest.raises(LauncherError):
        disk.check(tmp_path, 1 << 60, what=MODEL, where="HF_HOME")
    disk.check(tmp_path, 0, what=MODEL, where="HF_HOME")


def target(name: str, *changes: str) -> Resolved:
    return resolve(name, [parse(change, "--set") for change in changes], None)


def test_what_targets_need() -> None:
    orders = needs.orders(target("h200-agg"))
    assert [(order.model, order.revision, order.tokenizer) for order in orders] == [
        (MODEL, COMMIT, True),
        ("nvidia/gpt-oss-120b-Eagle3-v3", "main", False),
    ]
    assert orders[0].exclude == ("metal/*", "original/*")
    assert "gpt-oss-120b.yaml:" in orders[0].where
    assert [order.model for order in needs.orders(target("gb200-trtllm-agg"))] == [MODEL]
    assert needs.orders(target("sim")) == ()
    assert [
        order.model for order in needs.orders(target("h200-agg", "model.path=/m", "speculative=null"))
    ] == []
