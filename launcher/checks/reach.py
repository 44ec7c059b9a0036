"""Short questions to other machines; none takes longer than a second."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

TIMEOUT_S = 1.0
T = TypeVar("T")
R = TypeVar("R")


class Answer(NamedTuple):
    """What came back."""

    status: int = 0
    """HTTP status; 0 where there was no answer."""
    body: str = ""
    error: str = ""
    """Why there was none, in the words of the system."""


def get(
    url: str,
    headers: Mapping[str, str] | None = None,
    ca_file: str | None = None,
    own: tuple[str, str | None] | None = None,
) -> Answer:
    """GET an address. Never raises; blocking, at most a second for each of connecting and reading.

    `own`: files of the certificate and key to show.
    """
    # Here, not above: a dry run imports this module and asks nobody.
    import http.client
    import ssl

    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        return Answer(error=f"no address: {error}")
    if parts.scheme not in ("http", "https") or not host:
        return Answer(error="no address of the form http://HOST:PORT")
    connection: http.client.HTTPConnection
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca_file)
            if own is not None:
                context.load_cert_chain(*own)
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers=dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.read(4096).decode("utf-8", "replace"))
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(error=said(error))


def said(error: BaseException, within_s: float = TIMEOUT_S) -> str:
    """An error in a few words; `within_s`: how long was waited."""
    if isinstance(error, TimeoutError):
        return f"no answer within {within_s:g} s"
    if message := getattr(error, "verify_message", ""):
        return f"certificate not trusted: {message}"
    # aiohttp has the system's error inside its own.
    inner = getattr(error, "os_error", error)
    if isinstance(inner, socket.gaierror):
        return f"its name cannot be resolved ({inner.strerror})"
    if isinstance(inner, OSError) and inner.errno and not hasattr(inner, "library"):
        # Not the text that came with it: asyncio's own speaks of a call that failed. An SSL error's number, though, is
        # none of the system's.
        return os.strerror(inner.errno).lower()
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror.lower()
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def tcp_error(host: str, port: int, environ: Mapping[str, str]) -> str | None:
    """Why no connection to a server of the internet can be opened; None where one can, or a proxy stands between."""
    if any(environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return None

    def connect(where: tuple[str, int]) -> str | None:
        try:
            socket.create_connection(where, timeout=TIMEOUT_S).close()
        except OSError as error:
            return said(error)
        return None

    late: str | None = f"no answer within {TIMEOUT_S:g} s"
    return together(connect, [(host, port)], late)[0]


def together(ask: Callable[[T], R], subjects: Sequence[T], late: R) -> list[R]:
    """Ask about all of them at once; `late` for those that have not answered in time.

    A name that cannot be resolved blocks for as long as the resolver likes, so nothing waits for its thread.
    """
    answers: list[R] = [late] * len(subjects)
    until = time.monotonic() + TIMEOUT_S + 0.3

    def one(place: int, subject: T) -> None:
        answers[place] = ask(subject)

    threads = [
        threading.Thread(target=one, args=(place, subject), name=f"reach-{place}", daemon=True)
        for place, subject in enumerate(subjects)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return list(answers)
