"""One model from the stand-in hub into a cache: whole, resumed, refused."""

from __future__ import annotations

import io
import socket
import threading
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from launcher.download import credentials, fetch, remote, transfer
from launcher.download.orders import Options, Order
from launcher.download.progress import Lines
from launcher.findings import Exit, LauncherError
from tests.download.conftest import SHARDS, Run, state
from tests.download.standin import COMMIT, MODEL, Hub


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


def test_a_hub_whose_name_cannot_be_resolved_is_tried_three_times(tmp_path: Path) -> None:
    out = io.StringIO()
    endpoint = "http://nosuch.invalid"
    options = Options(tmp_path, "HF_HOME", endpoint, credentials.find({"HOME": str(tmp_path)}), pace=0.01)
    with pytest.raises(LauncherError) as caught:
        fetch.run(Order(MODEL, COMMIT, (), True, ""), options, Lines(out), threading.Event())
    said = out.getvalue().splitlines()
    assert len(said) == 2
    assert all(line.startswith("the name nosuch.invalid cannot be resolved (") for line in said)
    finding = caught.value.findings[0]
    assert finding.code == "hub-unreachable"
    assert finding.what.startswith(f"gave up on {MODEL}: the name nosuch.invalid cannot be resolved")
    assert "in 3 tries" in finding.why


def test_a_resolver_that_fails_in_the_middle_is_waited_for_as_any_failure() -> None:
    """A host that has answered has a right name: hours of download do not end with a resolver's restart."""
    error = httpx.ConnectError("x", request=httpx.Request("GET", "http://hub.example/x"))
    error.__cause__ = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    for reached, tries in ((set(), 3), ({"hub.example"}, None)):
        found = remote.torn(error, "http://hub.example", reached)
        assert isinstance(found, remote.Torn)
        assert found.tries == tries


@pytest.mark.parametrize(
    "endpoint", ["hub.example", "ftp://hub.example", "http://[::1", "http://a b/", "http://:x"]
)
def test_an_endpoint_that_is_no_address(tmp_path: Path, endpoint: str) -> None:
    options = Options(tmp_path, "HF_HOME", endpoint, credentials.find({"HOME": str(tmp_path)}), pace=0.01)
    with pytest.raises(LauncherError) as caught:
        fetch.run(Order(MODEL, COMMIT, (), True, ""), options, Lines(io.StringIO()), threading.Event())
    assert caught.value.findings[0].code in ("hub-address", "hub-unreachable")


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
