"""A plan for a machine that somebody named says what the doctor says of its GPUs; it stays a plan."""

from __future__ import annotations

import pytest

from launcher.cli import main


@pytest.mark.parametrize("command", [["plan"], ["serve", "--dry-run"]])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--machine", "H200:4"], "gpu-count"),
        (["--machine", "B200:8"], "gpu-kind"),
        (["--machine", "H200:0"], "gpu-none"),
        (["--machine", "H200:8"], ""),
        (["--machine", "H200:4", "--engine", "mocker"], ""),
        ([], ""),
    ],
)
def test_a_plan_for_too_few_or_other_gpus(
    command: list[str], words: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--target", "h200-disagg", "--output", "json", *words]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "[gpu-" in line]
    assert [line.partition(":")[0] for line in said] == ([f"warning[{code}]"] if code else [])


def test_who_ignores_it_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--machine", "H200:4", "--ignore", "gpu-count=half a node"]
    assert main(["plan", "--target", "h200-disagg", *words]) == 0
    assert "warning[gpu-count]: ignored (half a node" in capsys.readouterr().err
