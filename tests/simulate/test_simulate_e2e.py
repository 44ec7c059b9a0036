"""`launcher simulate` on the installed simulator, small."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.simulate import replay_child

SMALL = ["simulate", "--target", "h200-disagg", "--concurrency", "16", "--requests", "200"]


def test_splits_are_predicted_and_the_best_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--split", "4P4D", "--split", "agg", "--router", "kv", "--out", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    for word in ("PREDICTION", "4P4D (target)", "8 agg", "not modelled", "2.72", "NIXL"):
        assert word in out
    found = json.loads((tmp_path / "simulate.json").read_text())
    assert found["simulated"] is True
    assert {each["split_name"] for each in found["predictions"]} == {"8 agg", "4P4D"}
    for each in found["predictions"]:
        assert each["requests"] == 200
        assert 10 < each["tok_s_gpu"] < 2000
        assert 0.7 < each["hit"] < 0.95
    html = (tmp_path / "simulate.html").read_text()
    assert "nothing was measured" in html
    assert html.count("<svg") == 3


def test_round_robin_hits_less(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--split", "agg", "--all", "--json"]) == 0
    found = {each["case"]["router"]: each for each in json.loads(capsys.readouterr().out)["predictions"]}
    assert found["round-robin"]["hit"] < found["kv"]["hit"]


def test_a_trace_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.jsonl"
    rows = [
        {
            "input_length": 200_000 if index == 3 else 2048,
            "output_length": 20,
            "hash_ids": [index * 400 + n for n in range(4)],
        }
        for index in range(20)
    ]
    rows[3]["hash_ids"] = list(range(100_000, 100_391))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["simulate", "--target", "h200-agg", "--trace", str(path), "--concurrency", "4", "--split", "agg"]
    assert main([*words, "--router", "kv", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["predictions"][0]["requests"] == 19
    assert any("above the context length" in line for line in found["not_modelled"])
    assert "trace-over-limit" in captured.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--split", "9P9D"], "known: 8 agg, 1P7D"),
        (["--timing", "h100"], "simulate-timing"),
        (["--timing", "/none.npz"], "no file"),
        (["--trace", "/none.jsonl"], "trace-missing"),
        (["--concurrency", "0"], "whole numbers"),
        (["--python", sys.executable + "-none"], "python"),
    ],
)
def test_what_cannot_work_is_said(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, *words]) in (2, 4)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("python", "code", "told"),
    [("/bin/false", 3, "dynamo-missing"), ("/nonexistent", 2, "python-missing")],
)
@pytest.mark.parametrize("flag", [True, False])
def test_an_interpreter_without_dynamo_is_named_as_by_a_start(
    python: str,
    code: int,
    told: str,
    flag: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["--python", python] if flag else []
    if not flag:
        monkeypatch.setenv("LAUNCHER_PYTHON", python)
    said = []
    for command in (SMALL, ["serve", "--target", "h200-disagg", "--engine", "mocker"]):
        assert main([*command, *words]) == code
        said += [line for line in capsys.readouterr().err.splitlines() if told in line]
    assert len(said) == 2
    assert said[0] == said[1]
    assert f"(set in {'--python' if flag else 'LAUNCHER_PYTHON'})" in said[0]


def test_an_interpreter_whose_dynamo_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr("launcher.cli.simulate.packages.versions", lambda _: {"ai-dynamo": "1.6.1"})
    assert main([*SMALL, "--split", "agg", "--python", str(bare)]) == 2
    assert "simulator-missing" in capsys.readouterr().err


def test_both_generations_get_their_own_words() -> None:
    engine = {
        "backend": "vllm",
        "role": "prefill",
        "blocks": 100,
        "block": 64,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 8192,
        "prefix_caching": True,
        "chunked_prefill": True,
        "dp": 1,
        "kv_bytes": 23069,
        "transfer_gb_s": 200.0,
        "host_blocks": 7,
        "table": "/t.npz",
    }
    nested = replay_child.nested_engine(engine)
    assert nested["engine"]["native_host_offload"] == {"num_host_blocks": 7}
    assert nested["engine"]["timing_model"]["config"] == {"path": "/t.npz"}
