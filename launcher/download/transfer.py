"""One file from the hub to its blob: resumed, hashed while it comes, and put in place only when it is right.

huggingface_hub 1.x gives each process a partial file of its own and starts over after a crash. A shard of the 120b
is 4.6 GB and jobs are evicted, so ours has a fixed name and goes on by `Range`, also after SIGKILL.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from launcher.download.manifest import Entry
from launcher.download.refusal import Refused
from launcher.download.remote import Hub, Torn, torn

if TYPE_CHECKING:
    import httpx

CHUNK = 1 << 20
"""Bytes read from disk at a time."""
SUFFIX = ".launcher.incomplete"
DELAYS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)
"""Waits between tries that brought no byte; a byte starts them over."""


class Corrupt(Exception):
    """The content does not hash to what the hub said."""


class Stopped(Exception):
    """Asked to stop."""


class GaveUp(Exception):
    """Tried often enough; the text is the last failure."""

    def __init__(self, text: str, tries: int) -> None:
        self.tries = tries
        super().__init__(text)


class Patience:
    """How long to go on trying: counts failures in a row and waits between them."""

    def __init__(self, note: Callable[[str], None], stop: threading.Event, pace: float = 1.0) -> None:
        self._note = note
        self._stop = stop
        self._pace = pace
        self._failures = 0

    def reset(self) -> None:
        """Something arrived."""
        self._failures = 0

    def wait(self, what: str, asked_s: float | None = None, tries: int | None = None) -> None:
        """Wait before the next try, as long as the server asked. Raises GaveUp or Stopped.

        `tries`: how often this failure is worth trying in all, where that is less often than others.
        """
        most = len(DELAYS_S) if tries is None else tries - 1
        if self._failures >= most:
            raise GaveUp(what, self._failures + 1)
        delay = DELAYS_S[self._failures] * self._pace
        if asked_s is not None:
            # A second more, because the server rounds.
            delay = max(delay, asked_s + self._pace)
        self._failures += 1
        said = "the hub asks to wait, " if asked_s is not None else ""
        self._note(f"{what}: {said}trying again in {delay:.0f} s ({self._failures} of {most})")
        if self._stop.wait(delay):
            raise Stopped


def refused(response: httpx.Response) -> Refused:
    """The answer as an exception; where a content server refused after a redirect, the next try gets a new address."""
    error = Refused(response.status_code, response.headers, str(response.url))
    if response.history and error.status == 403 and not error.code:
        error.status = 503
    return error


class Digest(Protocol):
    """A hash in the making."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


def digest_for(entry: Entry) -> Digest:
    """The hash that names the blob: SHA-256, or git's SHA-1 with its header for small files."""
    if entry.large:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)


def hash_file(
    path: Path,
    entry: Entry,
    *,
    stop: threading.Event,
    on_bytes: Callable[[int], None],
    limit: int | None = None,
) -> Digest:
    """The hash of a file, or of its first `limit` bytes. Raises OSError or Stopped."""
    digest = digest_for(entry)
    left = entry.size if limit is None else limit
    with path.open("rb", buffering=0) as file:
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            if stop.is_set():
                raise Stopped
            digest.update(chunk)
            left -= len(chunk)
            on_bytes(len(chunk))
    return digest


def partial(blob: Path) -> Path:
    """The unfinished file of a blob."""
    return blob.with_name(blob.name + SUFFIX)


def fetch(
    hub: Hub,
    url: str,
    entry: Entry,
    blob: Path,
    *,
    patience: Patience,
    stop: threading.Event,
    on_bytes: Callable[[int], None],
) -> None:
    """Bring `blob` whole and right into its place. Raises Refused, GaveUp, Corrupt, Stopped or OSError.

    `on_bytes` hears of each byte received, and with a negative count of bytes that had to be thrown away.
    """
    part = partial(blob)
    have = min(_size(part), entry.size)
    # Hashing what is there costs a second per shard, and finds a torn write of a crashed machine only at the end:
    # then the file is fetched anew.
    digest = (
        hash_file(part, entry, stop=stop, on_bytes=lambda _: None, limit=have) if have else digest_for(entry)
    )
    with part.open("r+b" if part.exists() else "wb", buffering=0) as file:
        file.truncate(have)
        file.seek(have)
        while have < entry.size:
            try:
                for chunk in _stream(hub, url, have):
                    if stop.is_set():
                        raise Stopped
                    if chunk is None:
                        # The server sends from the start although asked for the rest.
                        file.seek(0)
                        file.truncate()
                        on_bytes(-have)
                        have, digest = 0, digest_for(entry)
                        continue
                    if have + len(chunk) > entry.size:
                        raise Corrupt(f"{entry.name}: more than its {entry.size} bytes came")
                    _write(file.fileno(), chunk)
                    digest.update(chunk)
                    have += len(chunk)
                    on_bytes(len(chunk))
                    patience.reset()
                if have < entry.size:
                    raise Torn(f"the answer ended after {have} of {entry.size} bytes")
            except Torn as error:
                patience.wait(f"{entry.name}: {error}", tries=error.tries)
            except Refused as error:
                if error.status == 416:
                    raise Corrupt(f"{entry.name}: the hub has fewer bytes than are here") from None
                if not error.transient:
                    raise
                patience.wait(f"the hub answered {error.status}", error.wait_s)
        os.fsync(file.fileno())
    if digest.hexdigest() != entry.blob:
        raise Corrupt(f"{entry.name}: hash {digest.hexdigest()[:12]}… instead of {entry.blob[:12]}…")
    os.replace(part, blob)


def _stream(hub: Hub, url: str, have: int) -> Iterator[bytes | None]:
    """The bytes from `have` on; None first where the server starts over. Raises Refused, Torn or LauncherError."""
    import httpx

    headers = {"range": f"bytes={have}-"} if have else {}
    try:
        with hub.client.stream("GET", url, headers=headers) as response:
            if response.status_code >= 400:
                raise refused(response)
            if have and response.status_code == 200:
                yield None
            elif have and not response.headers.get("content-range", "").startswith(f"bytes {have}-"):
                raise Torn(f"asked from byte {have}, got {response.headers.get('content-range')!r}")
            # As it comes: what waits in a buffer when a connection tears would be fetched twice.
            yield from response.iter_raw()
    except httpx.TransportError as error:
        raise torn(error, hub.endpoint, hub.reached) from None


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
