"""One download of a model at a time on a volume, across processes, pods and nodes.

Two means together, because each alone fails somewhere. `flock` is let go by the kernel the moment a holder dies, but
some network file systems grant it to every node at once. So a holder also beats: it rewrites the lock file's text
every few seconds, and who gets the flock while another's text still changes keeps waiting.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BEAT_S = 5.0
STALE_S = 30.0
"""A text that stood still for this long belongs to a holder that died on a node whose flock we cannot see."""
POLL_S = 1.0
_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class _Holder:
    """Who this process is, as others read it, and its beat."""

    def __init__(self) -> None:
        self.nonce = secrets.token_hex(8)
        self.beat = 0
        self.since = time.time()

    def text(self) -> bytes:
        self.beat += 1
        data = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": int(self.since),
            "nonce": self.nonce,
            "beat": self.beat,
        }
        return (json.dumps(data) + "\n").encode()


def describe(text: bytes) -> str:
    """The holder named by a lock file's text, for a message."""
    try:
        data: Any = json.loads(text)
        return f"pid {int(data['pid'])} on {data['host']!s:.100}, since {_clock(int(data['since']))}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return "another process"


@contextlib.contextmanager
def hold(
    path: Path,
    *,
    waiting: Callable[[str], None],
    stop: threading.Event,
    poll_s: float = POLL_S,
    stale_s: float = STALE_S,
) -> Iterator[None]:
    """Hold the lock file at `path`, waiting for whoever has it.

    `waiting` is called at each poll with the holder's name. Leaves early, without the lock, with `Stopped` where
    `stop` is set. Raises OSError where the folder cannot be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Group members write too: in a pod the group is what two jobs under different users share.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
    holder = _Holder()
    done = threading.Event()
    try:
        _acquire(descriptor, waiting, stop, poll_s, stale_s)
        _write(descriptor, holder.text())
        beat = threading.Thread(target=_beat, args=(descriptor, holder, done), name="lock", daemon=True)
        beat.start()
        try:
            yield
        finally:
            done.set()
            beat.join()
            with contextlib.suppress(OSError):
                # Empty means let go: the next one need not wait for the beat to grow stale.
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


class Stopped(Exception):
    """Asked to stop while waiting."""


def _acquire(
    descriptor: int, waiting: Callable[[str], None], stop: threading.Event, poll_s: float, stale_s: float
) -> None:
    seen: bytes | None = None
    still_since = time.monotonic()
    while True:
        if _try_flock(descriptor):
            text = _read(descriptor)
            if not text or _is_dead_here(text):
                return
            if text != seen:
                seen, still_since = text, time.monotonic()
            elif time.monotonic() - still_since > stale_s:
                return
            # Not ours yet: let others look too.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        else:
            text = _read(descriptor)
            seen = None
        waiting(describe(text))
        if stop.wait(poll_s):
            raise Stopped


def _try_flock(descriptor: int) -> bool:
    """Whether we have the flock; True too on a file system that has none, where only the beat counts."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return True
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _is_dead_here(text: bytes) -> bool:
    """Whether the holder was a process of this machine: we have its flock, so it is gone."""
    try:
        data: Any = json.loads(text)
        return bool(data["host"] == socket.gethostname())
    except (ValueError, KeyError, TypeError):
        return False


def _beat(descriptor: int, holder: _Holder, done: threading.Event) -> None:
    while not done.wait(BEAT_S):
        # A full disk must not end the download's lock: the flock still stands.
        with contextlib.suppress(OSError):
            _write(descriptor, holder.text())


def _write(descriptor: int, text: bytes) -> None:
    # One call each, longer text first: a reader never sees an empty file, which would mean `let go`.
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))


def _read(descriptor: int) -> bytes:
    with contextlib.suppress(OSError):
        return os.pread(descriptor, 4096, 0)
    return b""


def _clock(seconds: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
