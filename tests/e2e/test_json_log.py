"""A log of JSON lines is one from its first line to its last, whatever happens to the launcher meanwhile."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.runs import ROOT, Run

NO_HTTP = (
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\r\n\r\n",
)


def test_neither_a_port_scan_nor_a_kill_breaks_it(tmp_path: Path) -> None:
    with Run("sim", "--log-format", "json", state=tmp_path) as run:
        run.ready()
        for request in NO_HTTP * 3:
            with socket.create_connection((run.host, run.admin_port), 10) as client:
                client.sendall(request)
                assert b" 400 " in client.recv(64)
        ordered = subprocess.run(
            [sys.executable, "-m", "launcher", "restart", "decode-9", "--state-dir", str(tmp_path)],
            cwd=ROOT, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert ordered.returncode == 2, ordered
        assert "there is no 'decode-9'" in ordered.stderr
        os.kill(run.status()["pid"], signal.SIGKILL)
        assert run.wait() == 137
    messages = [str(json.loads(line)["message"]) for line in run.lines]
    assert 1 <= sum("sent no HTTP request" in message for message in messages) <= 2
    assert any(message.startswith("order refused: there is no 'decode-9'") for message in messages)
    assert any("the launcher was killed by SIGKILL" in message for message in messages)
