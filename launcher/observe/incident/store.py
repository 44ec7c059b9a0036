"""The folder of incident files: written whole or not at all, and never more than a few."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.observe.incident.text import render

KEEP = 20
"""Newest incidents kept, over all runs that share the folder."""
ABANDONED_S = 60.0
"""Age of a temporary file, in seconds, from which nobody is still writing it."""
TERMINATION_LOG = Path("/dev/termination-log")
"""What the kubelet reads after the container's end (terminationMessagePath); it takes 4096 bytes."""
SUMMARY = ("id", "time", "kind", "process", "what", "outcome", "target")


def folder(run_dir: str, log_dir: Path | None) -> Path:
    """Where incidents are kept: beside the logs where those are kept, else beside the runs' private folders."""
    return (log_dir if log_dir is not None else Path(run_dir).parent) / "incidents"


class Store:
    """`ID.json` for programs and `ID.txt` for people; an id sorts by time. Blocking."""

    def __init__(self, folder: Path, keep: int = KEEP) -> None:
        self.folder = folder
        self._keep = keep

    def write(self, incident: Mapping[str, Any]) -> Path:
        """Write the incident, over an earlier state of the same. OSError where the folder cannot be written to."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{incident['id']}.json"
        _replace(path, json.dumps(incident, indent=2, ensure_ascii=False) + "\n")
        _replace(path.with_suffix(".txt"), render(incident))
        for old in self._paths()[self._keep :]:
            for each in (old, old.with_suffix(".txt")):
                with contextlib.suppress(OSError):
                    each.unlink()
        return path

    def tidy(self) -> None:
        """Remove what a launcher that was killed while it wrote has left."""
        # By age, not by pid: the folder may be shared with pods, whose pids say nothing here.
        before = time.time() - ABANDONED_S
        try:
            found = [*self.folder.glob(".[0-9]*.json.*"), *self.folder.glob(".[0-9]*.txt.*")]
        except OSError:
            return
        for path in found:
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before:
                    path.unlink()

    def summaries(self) -> list[dict[str, Any]]:
        """What /status says of each incident in the folder, the newest first; whatever run they are of."""
        found = []
        for path in self._paths()[: self._keep]:
            with contextlib.suppress(OSError, ValueError):
                found.append(summary(json.loads(path.read_text(encoding="utf-8")), path))
        return found

    def _paths(self) -> list[Path]:
        try:
            return sorted(self.folder.glob("[0-9]*.json"), reverse=True)
        except OSError:
            return []


def summary(incident: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """An incident in one line of a list."""
    return {name: incident[name] for name in SUMMARY if incident.get(name)} | {"path": str(path)}


def tell_kubelet(text: str, path: Path = TERMINATION_LOG) -> None:
    """Leave the reason of the failure where `kubectl describe pod` shows it; nothing happens outside a pod."""
    with contextlib.suppress(OSError):
        if path.is_file():
            path.write_bytes(text.encode("utf-8", "backslashreplace")[-4096:])


def _replace(path: Path, text: str) -> None:
    # Beside it first: a reader, or a full disk, must never leave half an incident.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
