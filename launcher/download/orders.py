"""What to have, how, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launcher.download.credentials import Credential
from launcher.findings import Finding


@dataclass(frozen=True, slots=True)
class Order:
    """A model to have."""

    model: str
    revision: str
    exclude: tuple[str, ...]
    tokenizer: bool
    """False for a draft head, which uses its base model's."""
    where: str
    """The setting that names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """How and where."""

    hub_cache: Path
    cache_where: str
    """The variable that decided where the cache is."""
    endpoint: str
    credential: Credential
    workers: int = 8
    verify: bool = False
    """Hash again what was found right before."""
    pace: float = 1.0
    """Factor on the waits between tries; tests make it small."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is there now."""

    model: str
    commit: str
    folder: Path
    files: int
    size: int
    """Bytes on disk."""
    received: int
    """Bytes from the network in this run."""
    findings: tuple[Finding, ...] = ()
