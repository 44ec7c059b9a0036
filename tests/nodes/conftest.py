"""Nodes for a module's tests, each a network namespace, and one etcd; skipped where there can be none."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import nodes


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder with a short path."""
    path = Path(tempfile.mkdtemp(prefix="ln-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[tuple[nodes.Net, nodes.Etcd]]:
    """Nodes `a`, `b`, `c` and the one that has etcd."""
    reason = nodes.missing()
    if reason:
        pytest.skip(reason)
    with nodes.cluster(place, "a", "b", "c") as made:
        yield made
