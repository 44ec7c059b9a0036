"""`launcher status`: exit 0 ready, 3 not ready, 2 with a finding where nothing answers."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from launcher.cli import main
from launcher.plan.ports import free_everywhere
from tests.observe.support import state


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    """An HTTP server that answers every request so."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def page(**changes: Any) -> bytes:
    incident = {"id": "1", "time": "2026-01-01T00:00:00.000Z", "what": "decode-0 was killed", "outcome": "ready again",
                "path": "/state/incidents/1.json"}  # fmt: skip
    values = {
        "ready": True, "reasons": [], "target": "sim", "model": "openai/gpt-oss-120b", "engine": "mocker",
        "url": "http://127.0.0.1:8000", "uptime_s": 5.0, "processes": [state("decode-0").to_json()],
        "incidents": [incident],
    }  # fmt: skip
    return json.dumps(values | changes).encode()


def test_ready_is_exit_0_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(page()) as url:
        assert main(["status", "--url", url]) == 0
    out = capsys.readouterr().out
    assert "READY" in out
    assert "decode-0" in out
    assert "decode-0 was killed: ready again" in out
    assert "/state/incidents/1.json" in out
    assert "\x1b" not in out


def test_incidents_of_earlier_runs_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(page(incidents=[], earlier_incidents={"count": 4, "folder": "/state/incidents"})) as url:
        main(["status", "--url", url])
    assert capsys.readouterr().out.splitlines()[-1] == "4 earlier incidents in /state/incidents"


def test_not_ready_is_exit_3_with_the_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(page(ready=False, reasons=["decode-0 is loading"])) as url:
        assert main(["status", "--url", url]) == 3
    assert "waiting for: decode-0 is loading" in capsys.readouterr().out


def test_an_etcd_that_is_away_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(page(discovery={"backend": "etcd", "reachable": False, "error": "no answer"})) as url:
        assert main(["status", "--url", url]) == 0
    assert capsys.readouterr().out.startswith("READY, etcd unreachable")


def test_json_is_the_page_itself(capsys: pytest.CaptureFixture[str]) -> None:
    body = page()
    with answering(body) as url:
        assert main(["status", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(body)


def test_a_scheme_may_be_left_out() -> None:
    with answering(page()) as url:
        assert main(["status", "--url", url.removeprefix("http://")]) == 0


def test_nothing_there_is_exit_2_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    port = next(number for number in range(29000, 32000) if free_everywhere(number))
    assert main(["status", "--url", f"http://127.0.0.1:{port}"]) == 2
    error = capsys.readouterr().err
    assert "nothing answers" in error
    assert "--url" in error


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"not found", 404), (b"<html>", 200), (b"[]", 200), (b'{"object": "list"}', 200), (b"\xff\xfe", 200)],
)
def test_another_server_is_exit_2(body: bytes, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(body, status) as url:
        assert main(["status", "--url", url]) == 2
    assert "status-unreachable" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://", "nonsense:", "http://127.0.0.1:99999", "http://[::1", "ftp://x"])
def test_a_url_that_is_none_is_exit_2(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--url", url]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(page()) as url:
        assert main(["status", "--url", url]) == 0


def test_the_environment_says_where_the_launcher_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(page()) as url:
        monkeypatch.setenv("LAUNCHER_ADMIN_PORT", url.rpartition(":")[2])
        assert main(["status"]) == 0
    assert main(["status"]) == 2
    assert "(set in LAUNCHER_ADMIN_PORT)" in capsys.readouterr().err
    monkeypatch.delenv("LAUNCHER_ADMIN_PORT")
    monkeypatch.setenv("LAUNCHER_ADMIN_HOST", "127.9.9.9")
    assert main(["status"]) == 2
    assert "http://127.9.9.9:9000" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "smoke"])
def test_a_misspelt_variable_is_said(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAUNCHER_ADMIN_PROT", "1")
    assert main([command, "--url", "http://127.0.0.1:9"]) == 2
    assert "did you mean 'LAUNCHER_ADMIN_PORT'?" in capsys.readouterr().err


def test_smoke_asks_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAUNCHER_ADMIN_PORT", "9")
    assert main(["smoke"]) == 3
    assert "no launcher answers at http://127.0.0.1:9: " in capsys.readouterr().err
    monkeypatch.setenv("LAUNCHER_HTTP_PORT", "19")
    assert main(["smoke"]) == 3
    assert "http://127.0.0.1:19 lists no model" in capsys.readouterr().err


def test_the_default_is_not_called_a_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "launcher.cli.status.addresses", lambda: ("http://127.0.0.1:9", "the default", "", False)
    )
    assert main(["status"]) == 2
    err = capsys.readouterr().err
    assert "(the default)" in err
    assert "set in" not in err


def test_watch_goes_on_until_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = 0

    def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("launcher.cli.status.time.sleep", sleep)
    with answering(page()) as url:
        assert main(["status", "--url", url, "--watch", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
