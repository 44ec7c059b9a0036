"""On a machine whose only interface is loopback: a network namespace of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs import ROOT

pytestmark = pytest.mark.e2e
INSIDE = """
import fcntl, socket, struct, sys
from pathlib import Path
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    # SIOCSIFFLAGS with IFF_UP: what `ip link set lo up` does, on machines without `ip`.
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 1))
assert [name for _, name in socket.if_nameindex()] == ["lo"]
from tests.support.runs import Run
with Run("sim", state=Path(sys.argv[1])) as run:
    run.ready()
    assert run.chat("Hello")["usage"]["completion_tokens"] == 16
    assert run.stop() == 0
print("served")
"""


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare")
def test_it_serves_with_loopback_alone(state: Path) -> None:
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", INSIDE, str(state)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.stdout.endswith("served\n"), done.stderr
