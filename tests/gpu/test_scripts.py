"""The scripts for GPU machines: their arithmetic here, all of them on the simulator, and all of them on a real GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import full, multi
from tests.gpu.faults import _failures
from tests.gpu.load import Load, Reply, Shape
from tests.support.runs import ROOT


def replies(*rows: tuple[float, float, float, int, str]) -> Load:
    """A load of these replies: began, first, ended, tokens, error."""
    load = Load(Shape())
    for began, first, ended, tokens, error in rows:
        load.replies.append(Reply(began, ended, first, tokens, 100, 90, error))
    return load


def test_tokens_count_by_their_share_of_the_window() -> None:
    load = replies((0, 1, 11, 100, ""), (9, 10, 30, 200, ""))
    figures = load.figures(10.0, 5.0)
    # Of the first 6 of 10 seconds lie in 5..15, of the second 5 of 20.
    assert figures["output_tok_s"] == pytest.approx((60 + 50) / 10)
    assert figures["ttft_avg_s"] == 1.0
    assert figures["cached_share"] == 0.9


def test_a_fault_is_told_by_the_longest_silence_after_it() -> None:
    load = replies(
        (0, 1, 2, 8, ""),
        (2, 3, 9.5, 8, ""),
        (3, 0, 12, 0, "cut"),
        (12, 0, 13, 0, "HTTP 503"),
        (30, 31, 32, 8, ""),
    )
    told = _failures(load, 10.0)
    assert (told["failed"], told["under_way"], told["under_way_failed"]) == (2, 1, 1)
    assert told["silence_s"] == 22.5
    assert told["answers_again_s"] == 22.0
    assert told["last_failure_s"] == 3.0


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(1, [(1, 1)]), (2, [(1, 1)]), (3, [(1, 2), (2, 1)]), (8, [(4, 4), (2, 6), (6, 2)])],
)
def test_splits_use_every_gpu(gpus: int, expected: list[tuple[int, int]]) -> None:
    assert multi.splits(gpus) == expected


def test_splits_of_the_command_line() -> None:
    assert multi.parse("4+4,3+5") == [(4, 4), (3, 5)]
    with pytest.raises(SystemExit):
        multi.parse("4-4")


def test_graph_sizes_end_where_the_recipe_ends() -> None:
    # vLLM refuses to start otherwise.
    assert max(full.FEW_GRAPHS) == 1024
    assert '"max_cudagraph_capture_size":1024' in full.compilation(full.FEW_GRAPHS)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "command",
    [
        ("tests.gpu", "agg", "hangs", "disagg", "full:ours-triton"),
        ("tests.gpu.multi", "--gpus", "3", "--splits", "2+1", "--once"),
    ],
)
def test_dry(command: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", command[0], "--dry", "--out", str(tmp_path), *command[1:]],
        cwd=ROOT, capture_output=True, text=True, timeout=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert not [name for name, step in summary.items() if isinstance(step, dict) and "failed" in step], (
        done.stdout
    )


@pytest.mark.gpu
@pytest.mark.timeout(4000)
def test_everything_on_one_gpu(tmp_path: Path) -> None:
    steps = ["imports", "provoke", "agg", "hangs", "disagg", "disagg-tcp", "full"]
    command = [sys.executable, "-m", "tests.gpu", "--out", str(tmp_path), "--deadline", "3800", *steps]
    assert subprocess.run(command, cwd=ROOT, timeout=3900).returncode == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert not [name for name, step in summary.items() if isinstance(step, dict) and "failed" in step]
