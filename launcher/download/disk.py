"""Whether a download fits, before its first byte, and what a write error means."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from launcher.download.verdict import human
from launcher.findings import Exit, Finding, LauncherError

RESERVE = 1 << 30
"""Bytes to leave free: lock files, logs and compile caches live on the same volume."""
FULL = {errno.ENOSPC, errno.EDQUOT}


def free(path: Path) -> int | None:
    """Bytes that this user may still write where `path` is or will be; None where nothing says."""
    for folder in (path, *path.parents):
        try:
            found = os.statvfs(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return found.f_bavail * found.f_frsize
    return None


def check(path: Path, needed: int, *, what: str, where: str) -> None:
    """Raise LauncherError where `needed` bytes do not fit."""
    if needed == 0:
        return
    have = free(path)
    if have is None or have >= needed + RESERVE:
        return
    raise LauncherError(
        Finding(
            code="disk-full",
            what=f"{what} needs {human(needed)} more and {human(have)} are free in {path}",
            where=where,
            why="the download would stop half-way, and fill the volume for everybody on it",
            fix=f"free {human(needed + RESERVE - have)}, or point HF_HOME at a larger volume",
        ),
        Exit.CHECK_FAILED,
    )


def write_error(error: OSError, path: Path, where: str) -> LauncherError:
    """What an error while writing means."""
    if error.errno in FULL:
        finding = Finding(
            code="disk-full",
            what=f"the volume of {path} is full: {error.strerror}",
            where=where,
            why="something else filled it, or it has a quota; what was downloaded so far is kept",
            fix="make room and run the same command again: it goes on where it stopped",
        )
        return LauncherError(finding, Exit.CHECK_FAILED)
    user = f"uid {os.getuid()}, gid {os.getgid()}"
    finding = Finding(
        code="cache-unwritable",
        what=f"cannot write to {error.filename or path}: {error.strerror or error}",
        where=where,
        why=f"this process is {user}",
        fix="make the volume writable (in a pod: securityContext.fsGroup, and no readOnly on the mount)",
    )
    return LauncherError(finding, Exit.CHECK_FAILED)
