"""A start that is refused says so in the form of the log that it would have written."""

from __future__ import annotations

import json

import pytest

from launcher.cli import main
from launcher.findings import Exit


def test_where_the_log_is_json_a_refusal_is(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["serve", "--target", "no-such", "--log-format", "json"])
    assert code == Exit.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert record["process"] == "launcher"
    assert record["level"] == "error"
    assert record["message"].startswith("error[target-unknown]: ")


def test_in_a_pod_too_and_every_finding_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert main(["--target", "sim", "--set", "nope=1", "--set", "neither=2"]) == Exit.USAGE
    assert len([json.loads(line) for line in capsys.readouterr().err.splitlines()]) == 2


@pytest.mark.parametrize("wrong", ["text", "neither"])
def test_elsewhere_it_is_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("LAUNCHER_LOG_FORMAT", wrong)
    assert main(["serve", "--target", "no-such"]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("error[")
