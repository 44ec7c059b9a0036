"""Timing tables, splits, and the engines that a target becomes on the simulator."""

from __future__ import annotations

import itertools

import pytest

from launcher.cli import main
from launcher.findings import LauncherError
from launcher.plan.model import Role
from launcher.simulate import timing
from launcher.simulate.engines import build, known_table
from launcher.simulate.splits import Split, every
from launcher.simulate.study import Study
from launcher.target.overrides import parse
from launcher.target.resolve import resolve


@pytest.mark.parametrize("name", timing.names())
def test_more_work_never_takes_less_time(name: str) -> None:
    table = timing.load(name)
    for row in table.prefill_ms:
        assert list(row) == sorted(row)
    for first, second in itertools.pairwise(table.prefill_ms):
        # A single token without a prefix runs other kernels, up to a fifth slower.
        assert all(after >= before * 0.75 for before, after in zip(first, second, strict=True))
    for row in table.decode_ms:
        assert all(after >= before * 0.97 for before, after in itertools.pairwise(row))
    assert "aiconfigurator-core 0.12.0" in table.source


def test_between_and_beyond_the_points() -> None:
    rows, columns = (0.0, 10.0), (0.0, 100.0)
    values = ((0.0, 100.0), (10.0, 110.0))
    assert timing.bilinear(rows, columns, values, 5, 50) == pytest.approx(55)
    assert timing.bilinear(rows, columns, values, 20, 200) == pytest.approx(220)
    assert timing.bilinear(rows, columns, values, 0, -1000) == 0


def test_speculative_steps_read_the_cache_once() -> None:
    table = timing.load("h200-vllm-tp1")
    plain, checked = table.decode(32, 65536), table.verify(32, 65536, 4)
    # Dearer than one token, far cheaper than four, and cheaper for each of the 2.72 tokens that it yields.
    assert plain < checked < 2 * plain
    assert checked / 2.72 < plain
    grid = timing.grid(table, prefix=58000, draft_tokens=3, accepted=2.72)
    flat = timing.grid(table, prefix=58000)
    at = timing.KV_STEPS.index(1 << 21)
    assert grid["decode_itl"][at][7] < flat["decode_itl"][at][7]
    assert grid["prefill_ttft_ms"][6] > timing.grid(table, prefix=0)["prefill_ttft_ms"][6]


def names(splits: list[Split]) -> list[str]:
    return [split.name for split in splits]


@pytest.mark.parametrize(
    ("gpus", "widths", "expected"),
    [
        (4, (1, 1, 1), ["4 agg", "1P3D", "2P2D", "3P1D"]),
        (5, (None, 1, 4), ["1P1D"]),
        (8, (None, 1, 4), ["4P1D"]),
        (9, (None, 1, 4), ["1P2D", "5P1D"]),
        (1, (1, 1, 1), ["1 agg"]),
        (8, (4, None, None), ["2 agg"]),
        (2, (None, 4, 4), []),
    ],
)
def test_every_split_and_no_idle_gpu(
    gpus: int, widths: tuple[int | None, int | None, int | None], expected: list[str]
) -> None:
    aggregated, prefill, decode = widths
    assert names(every(gpus, aggregated=aggregated, prefill=prefill, decode=decode)) == expected


def study(name: str, *changes: str) -> Study:
    target = resolve(name, [parse(text, "--set") for text in changes]).target
    assert target.workload is not None
    return Study(target, target.workload, resolve(name).target.engine.kind, "python")


def test_the_targets_own_split_is_among_them() -> None:
    for name in (
        "h200-agg",
        "h200-disagg",
        "b200-agg",
        "b200-disagg",
        "gb200-trtllm-agg",
        "gb200-trtllm-disagg",
    ):
        subject = study(name)
        assert subject.own in subject.splits
    assert names(study("h200-disagg").splits)[:3] == ["8 agg", "1P7D", "2P6D"]


def test_engines_follow_the_target() -> None:
    target = resolve("h200-disagg").target
    prefill = dict(target.workers.items())[Role.PREFILL]
    engine = build(target, Role.PREFILL, prefill, "vllm", None)
    # Measured on an H200 with vLLM 0.23: 2,657,749 tokens.
    assert engine.blocks * engine.block == pytest.approx(2_657_749, rel=0.001)
    assert engine.max_num_batched_tokens == 32768
    assert engine.table == "h200-vllm-tp1"
    together = dict(resolve("h200-agg").target.workers.items())[Role.AGGREGATED]
    offloading = build(resolve("h200-agg").target, Role.AGGREGATED, together, "vllm", None)
    assert offloading.host_blocks == 107374182400 // 23069 // 64
    assert build(resolve("h200-agg").target, Role.PREFILL, together, "vllm", None).host_blocks == 0
    assert (
        build(resolve("b200-agg").target, Role.AGGREGATED, together, "vllm", None).table
        == "b200-trtllm-w4a8-tp1"
    )


def test_tensorrt_llm_targets() -> None:
    agg = resolve("gb200-trtllm-agg").target
    engine = build(agg, Role.AGGREGATED, dict(agg.workers.items())[Role.AGGREGATED], "trtllm", None)
    assert (engine.backend, engine.dp, engine.max_num_seqs, engine.prefix_caching) == (
        "trtllm",
        4,
        800,
        False,
    )
    disagg = resolve("gb200-trtllm-disagg").target
    decode = build(disagg, Role.DECODE, dict(disagg.workers.items())[Role.DECODE], "trtllm", None)
    assert (decode.table, decode.max_num_seqs, decode.gpus) == ("gb200-trtllm-w4a8-tp4", 1280, 4)
    assert decode.prefix_caching is False


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(LauncherError, match="simulate-no-timing"):
        study("h200-1gpu-disagg")
    with pytest.raises(LauncherError, match="h200-vllm-tp1"):
        known_table("h200-vllm")


@pytest.mark.parametrize("length", ["0", "-1", "0.99", "4.01", "100", "nan", "inf"])
def test_a_step_yields_no_more_than_it_checks(length: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--target", "h200-disagg", "--accept-length", length]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("(set in --accept-length) - it checks 3 draft tokens and adds one of its own - "
                         "--accept-length from 1 to 4")  # fmt: skip


def test_a_default_that_the_target_cannot_have_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--target", "h200-disagg", "--set", "speculative.num_tokens=1"]) == 2
    assert "a step cannot yield 2.72 tokens (the default)" in capsys.readouterr().err


def test_a_trace_that_cannot_be_made_is_said_before_the_first_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr("launcher.simulate.study.run")
    assert main(["simulate", "--target", "h200-disagg", "--concurrency", "16,100000"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no trace of 2400000 requests can be made" in line
