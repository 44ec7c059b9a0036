"""Brings the harmony vocabulary beside the model cache, where `harmony.find` looks."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

from launcher.download import cache, disk, harmony
from launcher.download.progress import Reporter
from launcher.download.refusal import Refused
from launcher.download.remote import CONNECT_S, READ_S, Torn, torn
from launcher.download.transfer import GaveUp, Patience
from launcher.findings import Exit, Finding, LauncherError


def vocabulary(
    environ: Mapping[str, str], source: str, reporter: Reporter, stop: threading.Event, *, pace: float = 1.0
) -> Path:
    """The vocabulary's path, staged from `source` (an address or a file) where it is not there yet.

    Raises LauncherError where it cannot be had, or where TIKTOKEN_ENCODINGS_BASE leads the processes elsewhere.
    """
    found = harmony.find(environ)
    if found.path is not None:
        return found.path
    target = harmony.staged(environ)
    if harmony.check(target) is not None:
        content = _content(environ, source, reporter, stop, pace)
        try:
            _put(target, content)
        except OSError as error:
            raise disk.write_error(error, target.parent, cache.hub_origin(environ)) from None
        reporter.note(f"harmony vocabulary: {target}, SHA-256 as expected")
    found = harmony.find(environ)
    if found.finding is not None:
        raise LauncherError(found.finding, Exit.CHECK_FAILED)
    return target


def _content(
    environ: Mapping[str, str], source: str, reporter: Reporter, stop: threading.Event, pace: float
) -> bytes:
    if "://" not in source or source.startswith("file://"):
        content = _read(Path(source.removeprefix("file://")))
    else:
        content = _get(environ, source, Patience(reporter.note, stop, pace))
    digest = hashlib.sha256(content).hexdigest()
    if digest == harmony.SHA256:
        return content
    raise LauncherError(
        Finding(
            code="harmony-hash",
            what=f"{source} is not the harmony vocabulary: SHA-256 {digest}; expected {harmony.SHA256}",
            where="--vocabulary" if source != harmony.URL else "the network",
            why="a proxy may have answered in its place",
            fix=f"fetch {harmony.URL} elsewhere and give the file with --vocabulary PATH",
        ),
        Exit.CHECK_FAILED,
    )


def _read(path: Path) -> bytes:
    try:
        path = path / harmony.FILE if path.is_dir() else path
        with path.open("rb") as file:
            # One byte more than it may have: a wrong file can be large.
            return file.read(harmony.SIZE + 1)
    except OSError as error:
        raise LauncherError(
            Finding(code="harmony-unreadable", what=f"{path}: {error.strerror}", where="--vocabulary")
        ) from None


def _get(environ: Mapping[str, str], source: str, patience: Patience) -> bytes:
    blocked = cache.offline(environ)
    if blocked is not None:
        raise LauncherError(
            Finding(
                code="harmony-missing",
                what=f"the harmony vocabulary is not in {harmony.staged(environ).parent}",
                where=f"{blocked}={environ[blocked]}",
                why="offline mode forbids to fetch it",
                fix=f"unset {blocked} once, or give a copy with --vocabulary PATH",
            ),
            Exit.CHECK_FAILED,
        )
    while True:
        try:
            return _once(source)
        except Torn as error:
            reason, asked, tries = str(error), None, error.tries
        except Refused as error:
            if not error.transient:
                raise _failed(source, str(error)) from None
            reason, asked, tries = f"the server answered {error.status}", error.wait_s, None
        try:
            patience.wait(f"harmony vocabulary: {reason}", asked, tries)
        except GaveUp as error:
            raise _failed(source, f"{reason}, {error.tries} times") from None


def _once(source: str) -> bytes:
    import httpx

    content = bytearray()
    try:
        timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
        with httpx.stream("GET", source, follow_redirects=True, timeout=timeout) as response:
            if response.status_code >= 400:
                raise Refused(response.status_code, response.headers, str(response.url))
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > harmony.SIZE:
                    break
    except httpx.TransportError as error:
        raise torn(error, source) from None
    except (httpx.InvalidURL, httpx.TooManyRedirects, ValueError) as error:
        raise _failed(source, str(error)) from None
    return bytes(content)


def _failed(source: str, text: str) -> LauncherError:
    return LauncherError(
        Finding(
            code="harmony-unreachable",
            what=f"cannot fetch the harmony vocabulary: {text}",
            where=source,
            why="Dynamo's frontend cannot parse gpt-oss's answers without it",
            fix="fetch it elsewhere and give it with --vocabulary PATH, or a mirror with --vocabulary URL",
        ),
        Exit.PROCESS_FAILED,
    )


def _put(target: Path, content: bytes) -> None:
    """In one step, under a name of its own until it is whole: two jobs may do this at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
