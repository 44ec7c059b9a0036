"""What is no URL is refused at once by every command that takes one, and a server that is away in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cli import main
from launcher.cli.addresses import http_url
from launcher.findings import LauncherError

BENCH = ["bench", "--target", "sim", "--aiperf", "/bin/true"]


@pytest.mark.parametrize(
    "words",
    [
        [*BENCH, "--url"],
        ["smoke", "--url"],
        ["smoke", "--admin"],
        ["status", "--url"],
        ["restart", "--all", "--url"],
        ["render", "--target", "sim", "--url"],
    ],
    ids=lambda words: words[0] + words[-1],
)
@pytest.mark.parametrize("url", ["nix", "", "ftp://x:21", "http://", "http://a b:80", "http://x:99999"])
def test_what_is_no_url(words: list[str], url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, url]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert f"(set in {words[-1]}) - http://HOST:PORT" in err


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://gateway/", "http://gateway"),
        ("https://host.example/v1", "https://host.example"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("my_host:1", "http://my_host:1"),
    ],
)
def test_what_is_one(text: str, url: str) -> None:
    assert http_url(text, "--url") == url


@pytest.mark.parametrize("text", ["http://[::1", "http://[1:2:nix]:80", "127.0.0.1", "x:0", "http://x\n:80"])
def test_what_only_looks_like_one(text: str) -> None:
    with pytest.raises(LauncherError, match="is no URL"):
        http_url(text, "--url")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize(
    "words",
    [["status"], ["smoke"], [*BENCH, "--ready-timeout", "0", "--out"]],
    ids=lambda words: words[0],
)
def test_nobody_there_is_said_in_the_same_words(
    words: list[str], host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*words, str(tmp_path)] if words[-1] == "--out" else words
    assert main([*given, "--url", f"http://{host}:9"]) in (2, 3)
    err = capsys.readouterr().err
    assert "connection refused" in err
    assert "Connect call failed" not in err
    assert "ClientConnector" not in err
