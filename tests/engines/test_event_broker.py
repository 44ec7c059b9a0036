"""The event broker passes messages, and ends in order when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.engines import event_broker

LIMIT_S = 40.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_passes_messages_until_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    zmq = pytest.importorskip("zmq")
    publishers, subscribers = f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out"
    broker = subprocess.Popen([sys.executable, event_broker.__file__, publishers, subscribers])
    try:
        with zmq.Context() as context, context.socket(zmq.PUB) as out, context.socket(zmq.SUB) as into:
            for sock in (out, into):
                sock.set(zmq.LINGER, 0)
            out.connect(publishers)
            into.connect(subscribers)
            into.subscribe(b"")
            until = time.monotonic() + LIMIT_S
            while not into.poll(50):
                assert time.monotonic() < until
                out.send(b"event")
            assert into.recv() == b"event"
        broker.send_signal(number)
        assert broker.wait(LIMIT_S) == 0
    finally:
        broker.kill()
        broker.wait()
