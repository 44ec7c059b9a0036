"""The cache's layout: blobs by hash, snapshots of links to them, refs. As huggingface_hub writes and reads it."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from launcher.download import manifest, snapshot
from launcher.download.manifest import Entry


def blob(repo: Path, entry: Entry) -> Path:
    """Where the content of a file is kept."""
    return repo / "blobs" / entry.blob


def place(repo: Path, commit: str, entry: Entry) -> Path:
    """Where the file is seen."""
    return repo / "snapshots" / commit / entry.name


def present(repo: Path, commit: str, entry: Entry) -> Path | None:
    """The file's content of the right size, in the snapshot or only as a blob; None where neither is."""
    for path in (place(repo, commit, entry), blob(repo, entry)):
        try:
            if path.stat().st_size == entry.size:
                return path
        except OSError:
            continue
    return None


def link(repo: Path, commit: str, entry: Entry) -> None:
    """Show the blob in the snapshot. Raises OSError."""
    content, target = blob(repo, entry), place(repo, commit, entry)
    if not content.exists():
        return  # the snapshot holds the file itself: a volume without links
    target.parent.mkdir(parents=True, exist_ok=True)
    wanted = os.path.relpath(content, target.parent)
    if target.is_symlink() and os.readlink(target) == wanted:
        return
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        os.symlink(wanted, temporary)
    except OSError:
        # Some network volumes know no links: the snapshot then gets the file itself, as huggingface_hub does.
        shutil.move(content, target)
        return
    try:
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def set_refs(repo: Path, revision: str, commit: str) -> str | None:
    """Let the revision's name stand for the commit. Returns what `main` stands for, where that is another commit.

    A pinned commit has no name of its own, but Dynamo's frontend looks the model up as `main`: so `main` is set too
    where it is not, or leads to nothing. One that leads to another download is left to whoever made it.
    """
    if revision != commit:
        manifest.replace(repo / "refs" / revision, commit.encode())
    known = snapshot.resolve(repo, "main")
    if known is None or not (repo / "snapshots" / known).is_dir():
        manifest.replace(repo / "refs" / "main", commit.encode())
        return None
    return known if known != commit else None
