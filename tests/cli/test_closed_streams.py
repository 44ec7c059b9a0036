"""A caller that closed standard output or error (`>&-`): nothing is shown, and all else goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.plan.ports import free_everywhere
from tests.support.runs import ROOT, Run

LAUNCHER = f"exec {sys.executable} -m launcher"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("targets >&-", 0),
        ("plan --target sim >&-", 0),
        ("plan --target sim >&- 2>&- <&-", 0),
        ("status --url http://127.0.0.1:1 --json >&-", 2),
        ("--target nope 2>&-", 2),
        ("doctor --target sim --state-dir /dev/null >&-", 3),
    ],
)
def test_a_command_ends_as_ever(line: str, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{LAUNCHER} {line}"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or "2>&-" in line


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--help",
        "--version",
        "plan --help",
        "plan --target sim",
        "plan --target sim --output json",
        "serve --target sim --dry-run",
        "targets",
        "doctor --target sim --json",
        "explain gpu-none",
        "render --target h200-disagg",
        "trace make --target h200-disagg --requests 100 --out -",
    ],
)
def test_a_disk_that_is_full_is_one_line(words: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{LAUNCHER} {words} > /dev/full"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error") or "Error" in line]
    assert errors == ["error[output]: cannot write to standard output: No space left on device"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--target nope", 2),
        ("plan --target h200-disagg --machine H200:4", 0),
        ("doctor --target h200-agg", 3),
    ],
)
def test_an_error_that_nobody_can_be_told_keeps_its_code(words: str, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{LAUNCHER} {words} 2> /dev/full"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert done.returncode == code


@pytest.mark.parametrize(("words", "code"), [("plan --target h200-disagg", 0), ("nix", 2)])
def test_a_reader_that_left_changes_no_code(words: str, code: int) -> None:
    line = f"(sleep 0.2; ({LAUNCHER} {words}); echo $? >&2) | true"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.splitlines()[-1] == str(code)
    assert "BrokenPipe" not in done.stderr


def test_a_reader_that_has_enough_is_no_error() -> None:
    line = f"(({LAUNCHER} plan --target h200-disagg --output json); echo $? >&2) | head -1"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.splitlines()[-1] == "0"
    assert "Exception" not in done.stderr


@pytest.mark.e2e
def test_it_serves_on(state: Path) -> None:
    port = next(number for number in range(28000, 32000) if free_everywhere(number))
    closed = ("sh", "-c", 'exec "$@" >&-', "sh")
    with Run("sim", "--admin-port", str(port), state=state, prefix=closed) as run:
        run.admin_port = port  # no line tells it
        deadline = time.monotonic() + 90
        while run.admin("/readyz")[0] != 200:
            assert run.process.poll() is None, run.log
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert run.stop() == 0
