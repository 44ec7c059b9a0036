"""What the hub said a commit consists of, kept beside the snapshot so that its completeness can be judged offline.

A file of ours in the model's folder of the cache; Hugging Face's own tools ignore it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

FOLDER = "launcher"
VERSION = 1
MAX_BYTES = 64 << 20
Stamp = tuple[int, int]
"""Size in bytes and modification time in ns: a file that still has both was not written to since."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a repository."""

    name: str
    """Path inside the repository."""
    size: int
    """Bytes."""
    blob: str
    """Name of its blob in the cache (the ETag): SHA-256 of a large file, git's SHA-1 of a small one."""
    large: bool
    """Kept with Git LFS or Xet, so `blob` is its SHA-256."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of one commit, and which blobs were found to hash right."""

    model: str
    commit: str
    entries: tuple[Entry, ...]
    verified: Mapping[str, Stamp] = field(default_factory=dict)

    def wanted(self, exclude: Sequence[str]) -> tuple[Entry, ...]:
        """The files that are not excluded."""
        return tuple(entry for entry in self.entries if not excluded(entry.name, exclude))


def excluded(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches, by huggingface_hub's rules: `*` crosses slashes, `folder/` means all below it."""
    return any(fnmatch(name, pattern + "*" if pattern.endswith("/") else pattern) for pattern in patterns)


def stamp(path: Path) -> Stamp:
    """The file's stamp. Raises OSError."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def read(repo: Path, commit: str) -> Manifest | None:
    """The commit's manifest, None where there is none that can be understood."""
    path = repo / FOLDER / f"{commit}.json"
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        data: Any = json.loads(path.read_bytes())
        if data["version"] != VERSION or data["commit"] != commit:
            return None
        return Manifest(
            model=str(data["model"]),
            commit=commit,
            entries=tuple(
                Entry(str(name), int(size), str(blob), bool(large))
                for name, size, blob, large in data["files"]
            ),
            verified={str(blob): (int(size), int(mtime)) for blob, (size, mtime) in data["verified"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # A torn or foreign file is no manifest: the snapshot is then judged by its own index.
        return None


def write(repo: Path, manifest: Manifest) -> None:
    """Keep the manifest, in one step. Raises OSError."""
    data = {
        "version": VERSION,
        "model": manifest.model,
        "commit": manifest.commit,
        "files": [[entry.name, entry.size, entry.blob, entry.large] for entry in manifest.entries],
        "verified": {blob: list(seen) for blob, seen in manifest.verified.items()},
    }
    replace(repo / FOLDER / f"{manifest.commit}.json", json.dumps(data, indent=1).encode())


def replace(path: Path, content: bytes) -> None:
    """Write a small file so that a reader sees the old or the new one, never half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
