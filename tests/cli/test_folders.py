"""Folders that cannot be made are findings before the start (exit 3), not a traceback in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cli import main


@pytest.mark.parametrize(
    ("flag", "code"), [("--state-dir", "state-readonly"), ("--log-dir", "logs-readonly")]
)
@pytest.mark.parametrize("below", ["", "/below"])
def test_a_folder_that_is_a_file(
    flag: str, code: str, below: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "file").write_text("")
    folder = str(state / "file") + below
    assert main(["--target", "sim", "--http-port", "0", "--admin-port", "0", flag, folder]) == 3
    err = capsys.readouterr().err
    assert f"error[{code}]" in err
    assert f"(set in {flag})" in err


@pytest.mark.parametrize("flag", ["--state-dir", "--log-dir"])
def test_a_folder_of_the_kernels(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "sim", "--http-port", "0", "--admin-port", "0", flag, "/proc/x"]) == 3
    assert "cannot be made" in capsys.readouterr().err


def test_a_variable_is_named_where_it_set_the_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAUNCHER_LOG_DIR", "/proc/x")
    assert main(["--target", "sim", "--http-port", "0", "--admin-port", "0"]) == 3
    assert "(set in LAUNCHER_LOG_DIR)" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["targets"], ["plan", "--target", "sim"]])
def test_a_folder_of_targets_that_is_not_there(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*argv, "--config-dir", "/nonexistent"]) == 2
    err = capsys.readouterr().err
    assert "there is no folder /nonexistent (set in --config-dir)" in err
    assert len(err.splitlines()) == 1


def test_a_program_that_is_no_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--target", "sim", "--python", "/bin/ls"]) == 3
    out = capsys.readouterr().out
    assert "/bin/ls is no Python with ai-dynamo" in out
    assert "none (runs" not in out
