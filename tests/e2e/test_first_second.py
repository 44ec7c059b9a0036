"""A stop that comes before anything runs, as PID 1: the kernel drops a signal that PID 1 does not handle."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.runs import ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None, reason="a PID namespace takes root and unshare"
    ),
]


def handles_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & 1 << (signal.SIGTERM - 1))


@pytest.mark.parametrize("after_s", [0.0, 0.2])
def test_sigterm_in_the_first_second_is_not_lost(after_s: float, state: Path) -> None:
    command = [
        "unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "launcher", "--target", "sim",
        "--http-host", "127.0.0.1", "--state-dir", str(state),
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as outer:
        try:
            until = time.monotonic() + 10
            while not (inside := psutil.Process(outer.pid).children()) and time.monotonic() < until:
                time.sleep(0.002)
            # From the interpreter's first line on; before that nobody can handle anything.
            while not handles_sigterm(inside[0].pid) and time.monotonic() < until:
                time.sleep(0.002)
            time.sleep(after_s)
            inside[0].send_signal(signal.SIGTERM)
            text = outer.communicate(timeout=20)[0].decode()
            assert outer.returncode in (0, 128 + signal.SIGTERM)
            assert "ready in" not in text
            assert "Traceback" not in text
        finally:
            outer.kill()
