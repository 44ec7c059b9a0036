"""The event plane's meeting point: publishers and subscribers connect here, so that none of them has to listen.

Without it each Dynamo process binds its ZMQ publishers to 0.0.0.0 at ports of the kernel's choice (Dynamo 1.3.1
to 1.6.1 has no setting against that). With `DYN_ZMQ_BROKER_URL` they connect to these two unix sockets in the run's
private folder instead: nothing but the API listens beyond loopback. What is lost while the broker is down, the
router fetches from the workers at their next event; a broker that comes back on the same sockets is found again
within 1.7 s.

Run by file name under whatever interpreter has Dynamo (pyzmq is one of its dependencies), so nothing of this package
is imported here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, NoReturn

HIGH_WATER = 100_000
"""Messages queued for one peer; Dynamo's own figure."""
ENDING = (signal.SIGTERM, signal.SIGINT)


def main(publishers: str, subscribers: str) -> NoReturn:
    """Pass messages from `publishers` to `subscribers` (ZMQ addresses that this process binds) until SIGTERM."""
    import zmq

    # Before ZMQ starts its threads: they inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    context = zmq.Context()
    front, back = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
    for sock in (front, back):
        sock.set(zmq.SNDHWM, HIGH_WATER)
        sock.set(zmq.RCVHWM, HIGH_WATER)
        sock.set(zmq.LINGER, 0)
    front.bind(publishers)
    back.bind(subscribers)
    # The proxy runs in C and would never let Python's handlers run.
    threading.Thread(target=_pass_on, args=(front, back), daemon=True).start()
    signal.sigwait(ENDING)
    os._exit(0)


def _pass_on(front: Any, back: Any) -> None:
    import zmq

    try:
        zmq.proxy(front, back)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:3])
