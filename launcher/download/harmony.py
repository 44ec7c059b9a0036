"""The harmony vocabulary: the token ranks with which Dynamo's frontend parses gpt-oss's reasoning and tool calls.

Dynamo looks in the folder named by TIKTOKEN_ENCODINGS_BASE, and downloads it on the first request where that is not
set. Where neither works it still answers 200, with empty content and no tool calls (measured, 1.3.1): so it is
checked before anything starts.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.download import cache
from launcher.findings import Finding

FILE = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""As OpenAI's tiktoken and openai-harmony expect it."""
SIZE = 3_613_922
"""Bytes."""
URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
_WHY = "without it the API answers 200 with empty content and no tool calls"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The vocabulary, or why there is none."""

    path: Path | None
    """The file, verified; None where `finding` says why not."""
    where: str
    """What led to it: the variable or the folder."""
    finding: Finding | None = None

    def env(self) -> dict[str, str]:
        """What the frontend and the workers need to find it."""
        return {} if self.path is None else {VARIABLE: str(self.path.parent)}


def staged(environ: Mapping[str, str]) -> Path:
    """Where `launcher download` puts it: beside the model cache, which pods keep on a volume."""
    return cache.home(environ) / "harmony" / FILE


def find(environ: Mapping[str, str], *, fix: str = "launcher download --target NAME") -> Vocabulary:
    """The vocabulary that the children will use. Reads 3.6 MB on the first call (about 5 ms), then only its stat.

    A folder named by TIKTOKEN_ENCODINGS_BASE that is wrong is an error even where a right one is staged: somebody
    named it, and with the variable set Dynamo downloads nothing.
    """
    named = environ.get(VARIABLE)
    path = staged(environ)
    if named is not None:
        return _named(named, path, fix)
    if not os.path.lexists(path):
        finding = Finding(
            code="harmony-missing",
            what=f"no harmony vocabulary: {VARIABLE} is not set and there is no {path}",
            where=cache.hub_origin(environ),
            why=f"Dynamo would download it on the first request; {_WHY}",
            fix=f"{fix}, or {VARIABLE}=FOLDER with {FILE} in it",
        )
        return Vocabulary(None, str(path), finding)
    problem = check(path)
    if problem is None:
        return Vocabulary(path, str(path.parent))
    return Vocabulary(None, str(path), _finding(problem, path, str(path), f"delete it, then {fix}"))


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with a file."""

    code: str
    text: str


def check(path: Path) -> Wrong | None:
    """What is wrong with a vocabulary file, None where it is the right one."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return Wrong("harmony-unreadable", "is not a file")
        # Size first: a mistaken file may be as large as a model.
        if found.st_size != SIZE:
            pointer = "is a Git LFS pointer" if found.st_size < 1024 and _starts_as_pointer(path) else ""
            return Wrong("harmony-hash", pointer or f"has {found.st_size} bytes instead of {SIZE}")
        digest = _sha256(str(path), found.st_ino, found.st_size, found.st_mtime_ns)
    except FileNotFoundError:
        return Wrong("harmony-folder", "does not exist")
    except OSError as error:
        return Wrong("harmony-unreadable", f"cannot be read: {(error.strerror or str(error)).lower()}")
    return None if digest == SHA256 else Wrong("harmony-hash", f"has SHA-256 {digest}")


def _named(named: str, other: Path, fix: str) -> Vocabulary:
    folder = Path(named)
    path = folder / FILE
    where = f"{VARIABLE}={named}"
    advice = f"unset {VARIABLE}" + ("" if check(other) is None else f" and run {fix}")
    if not named:
        return Vocabulary(None, where, _finding(Wrong("harmony-folder", "is empty"), VARIABLE, where, advice))
    if "://" in named:
        return Vocabulary(
            None,
            where,
            _finding(Wrong("harmony-folder", "is an address, not a folder"), named, where, advice),
        )
    if folder.name == FILE and folder.is_file():
        fault = Wrong("harmony-folder", "is the file; the variable wants its folder")
        return Vocabulary(None, where, _finding(fault, named, where, f"{VARIABLE}={folder.parent}"))
    if not folder.is_absolute():
        # It would mean another folder to each process that runs elsewhere.
        path = path.absolute()
    problem = check(path)
    if problem is None:
        return Vocabulary(path, where)
    if problem.code == "harmony-folder" and not folder.is_dir():
        return Vocabulary(None, where, _finding(problem, named, where, advice))
    return Vocabulary(None, where, _finding(problem, path, where, advice))


def _finding(problem: Wrong, subject: Path | str, where: str, fix: str) -> Finding:
    what = f"harmony vocabulary: {subject} {problem.text}"
    if problem.code == "harmony-hash":
        what += f"; expected SHA-256 {SHA256}"
    why = f"with {VARIABLE} set Dynamo downloads nothing; {_WHY}" if where.startswith(VARIABLE) else _WHY
    return Finding(code=problem.code, what=what, where=where, why=why, fix=fix)


def _starts_as_pointer(path: Path) -> bool:
    from launcher.download import weights

    return weights.is_pointer(path)


@functools.lru_cache(maxsize=16)
def _sha256(path: str, inode: int, size: int, mtime_ns: int) -> str:
    """The file's hash; the other arguments make a changed file another key."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
