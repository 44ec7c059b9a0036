"""A start that is refused says so in the form of the log that it would have written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.cli import main, serve
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


def test_a_fault_of_the_launcher_is_no_traceback_among_json_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(args: object) -> int:
        raise RuntimeError("a fault\nof two lines")

    monkeypatch.setattr(serve, "_serve", broken)
    assert main(["serve", "--target", "sim", "--log-format", "json"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert record["level"] == "critical"
    assert record["message"].startswith("the launcher itself failed: RuntimeError: a fault of two lines (at ")
    with pytest.raises(RuntimeError):
        main(["serve", "--target", "sim", "--log-format", "text"])


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_anything_is_started_is_128_and_its_number(
    tmp_path: Path, number: signal.Signals, after_s: float
) -> None:
    """As a shell counts, and the table of exit codes; late enough on a fast machine it is a stop as asked."""
    command = [sys.executable, "-m", "launcher", "--target", "sim", "--http-port", "0", "--admin-port", "0"]
    process = subprocess.Popen(
        [*command, "--state-dir", str(tmp_path / "state")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A shell's background job ignores SIGINT, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(after_s)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    assert code == 128 + number or (code == 0 and b"stopping" in out)
    assert not list((tmp_path / "state").glob("sim-*"))
