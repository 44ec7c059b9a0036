"""Traces on disk: written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from .model import Row


def text(rows: Iterable[Row], *, session: bool = True, schedule: bool = True) -> str:
    """The file's content, one JSON object a line."""
    return "".join(
        json.dumps(row.to_json(session=session, schedule=schedule), separators=(",", ":")) + "\n"
        for row in rows
    )


def write(path: Path, content: str) -> str:
    """Write through a temporary file, so that a cut-short copy never looks like a trace; returns the SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(content, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return hashlib.sha256(content.encode()).hexdigest()
