"""The command line over `LAUNCHER_*` over the target file; unknown names are said."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from launcher import settings
from launcher.cli import common, main
from launcher.findings import LauncherError
from tests.support.plans import plan


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_line_wins_over_the_environment_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan("sim").http_port == 8000
    monkeypatch.setenv("LAUNCHER_HTTP_PORT", "8100")
    assert plan("sim").http_port == 8100
    assert plan("sim", http_port="8200").http_port == 8200
    assert plan("sim", "network.http_port=8300").http_port == 8300


def test_everything_can_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAUNCHER_TARGET", "h200-disagg")
    monkeypatch.setenv("LAUNCHER_ENGINE", "mocker")
    monkeypatch.setenv("LAUNCHER_SET", "workers.prefill.count=1\nworkers.decode.count=1\n")
    code, out, _ = run(capsys, "plan", "--explain")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert "LAUNCHER_ENGINE" in rows["engine.kind"]
    assert "LAUNCHER_SET workers.prefill.count" in rows["workers.prefill.count"]
    assert "configs/targets/base/vllm.yaml:" in rows["kv.block_size"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LAUNCHER_HTTP_PROT", "1", "did you mean 'LAUNCHER_HTTP_PORT'"),
        ("LAUNCHER_HTTP_PORT", "http", "'http' is not a whole number"),
        ("LAUNCHER_HTTP_PORT", "99999", "65535"),
        (
            "LAUNCHER_BASE_PORT",
            "40000",
            "more than the most, 32000 (set in LAUNCHER_BASE_PORT) - each launcher takes",
        ),
        ("LAUNCHER_CONFIG_DIR", "/nonexistent", "there is no folder /nonexistent"),
        ("LAUNCHER_ENGINE", "vlm", "did you mean 'vllm'"),
        ("LAUNCHER_LOG_FORMAT", "xml", "'auto', 'text' or 'json'"),
        ("LAUNCHER_SET", "kv.block_size", "PATH=VALUE"),
    ],
)
def test_a_wrong_variable_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    code, out, err = run(capsys, "plan", "--target", "sim")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert words in err
    assert name in err


def test_a_target_of_the_environment_is_not_called_a_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAUNCHER_TARGET", "simm")
    assert "(set in LAUNCHER_TARGET) - did you mean 'sim'?" in run(capsys, "plan")[2]
    assert "(set in --target)" in run(capsys, "plan", "--target", "simn")[2]


def test_kubernetes_service_links_are_no_settings() -> None:
    environ = {
        "LAUNCHER_PORT": "tcp://10.0.0.1:80",
        "LAUNCHER_SERVICE_HOST": "10.0.0.1",
        "LAUNCHER_SERVICE_PORT_HTTP": "80",
        "LAUNCHER_PORT_80_TCP_ADDR": "10.0.0.1",
        "LAUNCHER_BENCH_SERVICE_HOST": "10.0.0.2",
    }
    settings.load({}, environ)
    with pytest.raises(LauncherError, match="LAUNCHER_PORTS"):
        settings.load({}, {"LAUNCHER_PORTS": "1"})


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--traget", "sim"], "--target"),
        (["--target"], "expected one argument"),
        (["--target", "sim", "--http-por", "1"], "--http-port"),
        (["serv", "--target", "sim"], "did you mean 'serve'"),
        (["--target", "sim", "--output", "xml", "--dry-run"], "invalid choice"),
        (["--dry-run"], "no target was named"),
        (["--target", "sim", "--output", "json"], "--dry-run"),
        (["--target", "sim", "--machine", "H200", "--engine", "auto"], "--dry-run"),
        (["--target", "sim", "--machine", "H2000", "--dry-run"], "is no machine"),
        (["--target", "sim", "--state-dir", "/tmp/" + "x" * 120, "--dry-run"], "--state-dir"),
        (["--target", "sim", "--python", "/nowhere/python"], "--python"),
    ],
)
def test_a_wrong_command_line_is_one_error_and_exit_2(
    capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert words in err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--help")[0] == 0
    code, out, _ = run(capsys, "--version")
    assert (code, out.split()[0]) == (0, "launcher")
    assert run(capsys)[0] == 2


def test_no_arguments_say_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, "commands:" in out) == (2, True)
    assert "give --target NAME, or set LAUNCHER_TARGET; launcher targets lists them" in err


def test_no_arguments_serve_the_target_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = []

    def serve(args: argparse.Namespace) -> int:
        served.append(common.load(args).resolved.target.name)
        return 0

    monkeypatch.setattr("launcher.cli.serve.run", serve)
    monkeypatch.setenv("LAUNCHER_TARGET", "sim")
    assert run(capsys) == (0, "", "")
    assert served == ["sim"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LAUNCHER_TARGT", "sim", "did you mean 'LAUNCHER_TARGET'?"),
        ("LAUNCHER_TARGET", "simm", "(set in LAUNCHER_TARGET) - did you mean 'sim'?"),
        ("LAUNCHER_TARGET", "", "'' is empty (set in LAUNCHER_TARGET)"),
    ],
)
def test_no_arguments_and_a_wrong_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_help_has_the_defaults_and_what_counts_for_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    def helped(command: str) -> str:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        return " ".join(capsys.readouterr().out.split())

    serving = helped("serve")
    for default in ("0.0.0.0", "8000", "9000", "20000", "auto", "$XDG_RUNTIME_DIR, else /tmp"):
        assert f"(default: {default})" in serving
    assert "--restart-budget" in serving
    for command in ("render", "download"):
        assert "--restart-budget" not in helped(command)
        assert "--target" in helped(command)


def test_another_config_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "targets" / "base").mkdir(parents=True)
    code, _, err = run(capsys, "plan", "--target", "sim", "--config-dir", str(tmp_path))
    assert code == 2
    assert "no target 'sim'" in err
