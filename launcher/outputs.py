"""Where results go: tried before the work that makes them, because that takes minutes to hours."""

from __future__ import annotations

import tempfile
from pathlib import Path

from launcher.findings import Finding, LauncherError


def folder(path: Path, where: str) -> Path:
    """The folder, made where it is not there. Raises LauncherError where nothing can be written into it."""
    try:
        if path.exists() and not path.is_dir():
            raise _unusable(f"{path} is no folder", where, "a folder, which is made where it is not there")
        path.mkdir(parents=True, exist_ok=True)
        # Only trying tells: permissions say nothing to root, nor in the kernel's own file systems.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise cannot_write(path, error, where) from None
    return path


def file(path: Path, where: str) -> Path:
    """The file's path, its folder made. Raises LauncherError where it cannot be written or replaced."""
    folder(path.parent, where)
    try:
        if path.exists() and not path.is_file():
            # Root would replace it by a file of that name: /dev/null.
            raise _unusable(
                f"{path} is no regular file", where, "the name of a file, or - for standard output"
            )
    except OSError as error:
        raise cannot_write(path, error, where) from None
    return path


def cannot_write(path: Path, error: OSError, where: str) -> LauncherError:
    """For what happens in spite of a look before."""
    return LauncherError(
        Finding(
            code="write",
            what=f"cannot write {path}: {error.strerror or error}",
            where=where,
            fix="a place that can be written",
        )
    )


def _unusable(what: str, where: str, fix: str) -> LauncherError:
    return LauncherError(Finding(code="write", what=what, where=where, fix=fix))
