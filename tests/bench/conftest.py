"""A stand-in for AIPerf."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.support import FakeAIPerf


@pytest.fixture
def aiperf(tmp_path: Path) -> FakeAIPerf:
    folder = tmp_path / "fake"
    folder.mkdir()
    return FakeAIPerf(folder)
