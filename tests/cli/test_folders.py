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


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["plan", "--target", "sim"], "--state-dir"),
        (["plan", "--target", "sim"], "--log-dir"),
        (["plan", "--target", "sim"], "--cache-dir"),
        (["plan", "--target", "sim"], "--config-dir"),
        (["plan", "--target", "sim"], "--python"),
        (["targets"], "--config-dir"),
        (["restart", "--all"], "--state-dir"),
    ],
)
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_path_is_not_the_current_folder(
    words: list[str], flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, f"{flag}={value}"]) == 2
    assert capsys.readouterr().err == f"error[setting-value]: {value!r} is empty (set in {flag})\n"


def test_an_empty_variable_is_no_path_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAUNCHER_LOG_DIR", "")
    assert main(["plan", "--target", "sim"]) == 2
    assert "'' is empty (set in LAUNCHER_LOG_DIR)" in capsys.readouterr().err


def test_results_without_a_name_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--compare", "", "x"]) == 2
    assert "the path is empty (set in --compare)" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--http-host", "--admin-host"])
def test_an_address_that_is_none_is_blamed_on_what_gave_it(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--target", "sim", "--http-port", "0", "--admin-port", "0"]
    assert main([*words, flag, "nix.invalid"]) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "port-unusable" in line]
    assert f"(set in {flag})" in line
    variable = "LAUNCHER_" + flag.removeprefix("--").replace("-", "_").upper()
    monkeypatch.setenv(variable, "nix.invalid")
    assert main(words) == 3
    assert f"(set in {variable})" in capsys.readouterr().err
