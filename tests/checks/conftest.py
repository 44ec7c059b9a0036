"""A launcher command in a quiet environment, shared by these tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main

Run = tuple[int, str, str]


@pytest.fixture
def quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty model cache without network, and nothing around that a check would speak about."""
    for name in list(os.environ):
        if name.startswith(("DYN_", "LAUNCHER_", "HF_", "VLLM_", "NCCL_", "UCX_", "TIKTOKEN_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def run(quiet_environment: None, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command; gives its exit code and what it wrote."""

    def call(*argv: str) -> Run:
        code = main(list(argv))
        out, err = capsys.readouterr()
        return code, out, err

    return call
