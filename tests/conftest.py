"""Fixtures of all tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder with a short path: the run's unix sockets lie below it, and Linux takes 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="lt-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
