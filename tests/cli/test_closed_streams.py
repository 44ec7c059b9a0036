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
