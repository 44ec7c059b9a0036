"""Breaks a worker from inside, on a signal. Every Python that has this folder in its PYTHONPATH imports it first.

SIGUSR2: the event loop is stuck for good (a handler that never returns), while Dynamo's own threads live on.
SIGUSR1: the echo worker's engine is broken: every request fails, nothing else does. A simulated worker ends at once,
and says with exit code 0 that all is well.
"""

import os
import signal
import sys
import time

if "launcher.engines.echo_worker" in sys.orig_argv:

    def stick(number: int, frame: object) -> None:
        while True:
            time.sleep(1000)

    def spoil(number: int, frame: object) -> None:
        from launcher.engines.echo_worker.worker import EchoWorker

        def broken(self: object, tokens: object) -> int:
            raise RuntimeError("the engine core is gone")

        EchoWorker._store = broken  # type: ignore[method-assign]

    signal.signal(signal.SIGUSR2, stick)
    signal.signal(signal.SIGUSR1, spoil)

if "dynamo.mocker" in sys.orig_argv:
    signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(0))
