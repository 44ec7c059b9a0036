"""`launcher doctor`, `explain` and `targets`, `--ignore`, and what stops a start."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.checks import ignore
from launcher.checks.base import Check, Group
from launcher.findings import Exit, Finding, LauncherError, Severity
from tests.support.plans import TARGETS


def doctor(run: Any, *argv: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run("doctor", "--json", *argv)
    assert not err
    return code, json.loads(out)


def found(result: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {finding["code"]: finding for finding in result["findings"]}


PORTS = ("--http-port", "0", "--admin-port", "0")


def test_a_target_with_nothing_wrong(run: Any) -> None:
    code, result = doctor(run, "--target", "sim", *PORTS)
    assert (code, result["ok"], result["errors"]) == (0, True, 0)
    assert result["target"] == "sim"
    assert result["checks"] > 90
    assert set(result["skipped"]) == {"model", "cluster"}
    assert "check-failed" not in found(result)


def test_everything_that_is_wrong_at_once_worst_first(run: Any) -> None:
    code, result = doctor(
        run, "--target", "h200-disagg", "--set", "kv.block_size=16", "--set", "kv.offload.connector=x"
    )
    assert code == 2  # the target cannot even be read: offload lacks its size
    code, result = doctor(
        run, "--target", "h200-disagg", "--set", "workers.prefill.args.block-size=16", *PORTS
    )
    assert code == 3
    codes = found(result)
    # Of the target, the installation, the machine, the model and the vocabulary: none stopped the next.
    assert {
        "block-size",
        "flag-owned",
        "engine-missing",
        "gpu-none",
        "model-missing",
        "harmony-missing",
    } <= set(codes)
    order = [finding["severity"] for finding in result["findings"]]
    assert order == sorted(order, key=["error", "warning", "info"].index)


def test_the_table(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = run("doctor", "--target", "h200-disagg", "--machine", "H200", "--set", "kv.events=false")
    assert (code, err) == (3, "")
    lines = out.splitlines()
    assert lines[0].startswith("h200-disagg (vllm) on a machine like that: 8x H200")
    assert lines[2].startswith("error    kv-events-off")
    assert all(len(line) <= 100 for line in lines), max(lines, key=len)
    assert "1 error, " in out
    assert "not looked at: interpreter, installed, environment, model, cluster (--machine" in " ".join(lines)
    assert "launcher explain kv-events-off" in lines[-1]


def test_a_target_that_cannot_be_read(run: Any) -> None:
    code, result = doctor(run, "--target", "h200-disag")
    assert (code, result["ok"]) == (2, False)
    assert found(result)["target-unknown"]["fix"] == "did you mean 'h200-disagg'?"
    assert run("doctor", "--target", "h200-disag")[0] == 2


def test_a_target_that_cannot_be_planned(run: Any) -> None:
    code, result = doctor(run, "--target", "h200-disagg", "--set", "workers.decode.count=0")
    assert code == 3
    assert "workers-half" in found(result)
    assert result["skipped"]["plan, machine, model"] == "nothing could be planned"


@pytest.mark.parametrize("name", TARGETS)
def test_quick_enough_to_run_before_every_start(run: Any, name: str) -> None:
    began = time.process_time()
    _, result = doctor(run, "--target", name, *PORTS)
    # CPU time, since other tests run beside; the wall clock has the limit of the issue.
    assert time.process_time() - began < 1
    assert result["seconds"] < 2 or os.getloadavg()[0] > 2


def test_a_check_that_fails_itself_is_no_pass(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.checks import machine

    def broken(*_: object) -> list[Finding]:
        raise ZeroDivisionError("oops")

    group = Group("machine", (Check(broken, ("x",)), *machine.CHECKS), Exit.CHECK_FAILED)
    monkeypatch.setattr(machine, "GROUP", group)
    code, result = doctor(run, "--target", "sim", *PORTS)
    assert code == 3
    assert "ZeroDivisionError: oops" in found(result)["check-failed"]["what"]


# Before a start -------------------------------------------------------------------------------------


def test_a_start_is_stopped_by_the_machine_with_3_and_by_the_target_with_2(run: Any) -> None:
    code, out, err = run("--target", "h200-disagg", *PORTS)
    assert (code, out) == (3, "")
    assert "error[gpu-none]" in err
    assert "error[engine-missing]" in err
    code, out, err = run("--target", "h200-disagg", "--set", "workers.prefill.args.block-size=16")
    assert (code, out) == (2, "")
    assert "error[block-size]" in err
    assert "gpu-none" not in err
    # A wrong environment is wrong input too, whatever the machine lacks.
    os.environ["OVERRIDE_QUANT_ALGO"] = "W4A8"
    try:
        assert run("--target", "gb200-trtllm-agg", *PORTS)[0] == 2
    finally:
        del os.environ["OVERRIDE_QUANT_ALGO"]


def test_a_held_port_names_its_holder(run: Any) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        code, _, err = run("--target", "sim", "--http-port", str(port), "--admin-port", "0")
    assert code == 3
    assert "error[port-taken]" in err
    assert f"pid {os.getpid()}" in err
    assert "(set in --http-port)" in err
    assert re.search(rf"--http-port {port + 1}\b|--http-port \d+", err)


def test_a_default_is_not_called_a_flag(run: Any) -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # somebody else holds it: as good
            stack.enter_context(socket.create_server(("0.0.0.0", 8000)))
        code, _, err = run("--target", "sim", "--admin-port", "0")
    assert code == 3
    assert "port 8000 of the API" in err
    assert "(the default)" in err
    assert "set in" not in err


def test_a_wrong_vocabulary_stops_a_start(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "o200k_base.tiktoken").write_text("not it")
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(tmp_path))
    code, _, err = run("--target", "sim", "--engine", "echo", *PORTS)
    assert code == 3
    assert "expected SHA-256 446a9538" in err


def test_warnings_are_told_by_a_dry_run_and_stop_nothing(run: Any) -> None:
    code, out, err = run("plan", "--target", "h200-disagg", "--machine", "H200")
    assert code == 0
    assert "warning[eagle3-disagg]" in err
    assert out


# Ignoring -------------------------------------------------------------------------------------------


def test_an_ignored_error_does_not_count_and_is_told_with_its_reason(run: Any) -> None:
    sets = ("--target", "h200-disagg", "--machine", "H200", "--set", "kv.events=false")
    assert run("plan", *sets)[0] == 2
    code, _, err = run("plan", *sets, "--ignore", "kv-events-off=measuring without")
    assert code == 0
    assert "warning[kv-events-off]: ignored (measuring without, --ignore): router.mode is kv" in err
    code, result = doctor(run, *sets, "--ignore", "kv-events-off=measuring without")
    assert code == 0
    assert result["ignored"][0]["reason"] == "measuring without"
    assert "ignored  kv-events-off" in run("doctor", *sets, "--ignore", "kv-events-off")[1]


def test_ignoring_by_environment_one_per_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHER_IGNORE", "kv-events-off=for now\nblock-size=a test, of commas\n")
    sets = ("--set", "kv.events=false", "--set", "simulation.args.block-size=16", "--ignore", "flag-owned")
    code, _, err = run("plan", "--target", "sim", *sets)
    # The command line replaces the environment's list, as with --set.
    assert code == 2
    assert "kv-events-off" in err
    monkeypatch.setenv("LAUNCHER_IGNORE", "kv-events-off=for now\nblock-size=a test, of commas\nflag-owned")
    code, _, err = run("plan", "--target", "sim", *sets[:-2])
    assert code == 0
    assert "ignored (a test, of commas, LAUNCHER_IGNORE)" in err
    assert "ignored (no reason given, LAUNCHER_IGNORE)" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kv-event-off", "did you mean 'kv-events-off'?"),
        ("", "no check says ''"),
        ("=reason", "no check says ''"),
        ("workers-none=x", "cannot be ignored"),
        ("python-missing", "cannot be ignored"),
    ],
)
def test_what_cannot_be_ignored(run: Any, text: str, words: str) -> None:
    for command in ("plan", "doctor", "serve"):
        code, _, err = run(command, "--target", "sim", "--ignore", text)
        assert code == 2
        assert words in err


def test_ignored_errors_end_as_warnings_and_notes_stay_notes() -> None:
    ignores = ignore.parse(["gpu-none=simulating"], "--ignore")
    kept, ignored = ignores.sift([Finding(code="gpu-none", what="w"), Finding(code="gpu-kind", what="k")])
    assert [finding.code for finding in kept] == ["gpu-kind"]
    assert ignored[0].as_warning().severity is Severity.WARNING
    note = ignore.Ignored(Finding(code="x", what="w", severity=Severity.INFO), "", "--ignore")
    assert note.as_warning().severity is Severity.INFO
    with pytest.raises(LauncherError):
        ignore.parse(["nonsense"], "--ignore")
