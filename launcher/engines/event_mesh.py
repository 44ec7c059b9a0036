"""The event plane past one node: each node's own meeting point, and the node's events for the others.

On the node it is what `event_broker` is there: publishers and subscribers connect to two unix sockets, and no Dynamo
process listens. What the node's publishers say also goes out on one TCP socket at the advertised address, and the
node's subscribers also hear what the other nodes put out there: those named in a file, one ZMQ address a line, that
the launcher rewrites as nodes come and go. So no node is the others' single point of failure, nodes start in any
order, every frontend hears every worker, and nothing goes in circles: what comes from another node is not put out.

Run by file name under whatever interpreter has Dynamo, so nothing of this package is imported here.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

HIGH_WATER = 100_000
"""Messages queued for one peer; Dynamo's own figure."""
LOOK_S = 0.25
"""Between looks at the file of peers."""
OWN = "inproc://own"
"""Where the node's own events go over to its subscribers."""
CONTROL = "inproc://control"
RECONNECT_MS = (100, 2000)
"""First and longest wait before a lost peer is tried again."""
HEARTBEAT_MS = 2000
"""A peer that is silent for two of these is connected to anew: a cut cable closes nothing."""


def peers(path: Path) -> set[str]:
    """The addresses in the file; none where it cannot be read."""
    try:
        return set(path.read_text().split())
    except OSError:
        return set()


def follow(path: Path, last: set[str], context: Any) -> None:
    """Interrupt the proxy whenever the file says something new."""
    import zmq

    sock = context.socket(zmq.PAIR)
    sock.connect(CONTROL)
    while True:
        now = peers(path)
        if now != last:
            last = now
            sock.send(b"TERMINATE")
        time.sleep(LOOK_S)


def main(publishers: str, subscribers: str, export: str, path: str) -> NoReturn:
    """Pass events until SIGTERM. The first three are ZMQ addresses to bind, the last the file of peers."""
    import zmq

    # The proxies run in C and would never let Python's handlers run.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    context = zmq.Context()

    def make(kind: int) -> Any:
        sock = context.socket(kind)
        sock.set(zmq.SNDHWM, HIGH_WATER)
        sock.set(zmq.RCVHWM, HIGH_WATER)
        sock.set(zmq.LINGER, 0)
        sock.set(zmq.RECONNECT_IVL, RECONNECT_MS[0])
        sock.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1])
        sock.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        sock.set(zmq.HEARTBEAT_TIMEOUT, 2 * HEARTBEAT_MS)
        return sock

    own_in, own_out, all_in, all_out = (make(kind) for kind in (zmq.XSUB, zmq.XPUB, zmq.XSUB, zmq.XPUB))
    own_in.bind(publishers)
    own_out.bind(OWN)
    own_out.bind(export)
    all_in.connect(OWN)
    all_out.bind(subscribers)
    control = context.socket(zmq.PAIR)
    control.bind(CONTROL)
    threading.Thread(target=zmq.proxy, args=(own_in, own_out), daemon=True).start()
    known: set[str] = set()
    now = peers(Path(path))
    threading.Thread(target=follow, args=(Path(path), now, context), daemon=True).start()
    while True:
        for address in sorted(now - known):
            all_in.connect(address)
        for address in sorted(known - now):
            all_in.disconnect(address)
        known = now
        # Sockets and what is queued in them outlive the interruption.
        zmq.proxy_steerable(all_in, all_out, None, control)
        now = peers(Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:5])
