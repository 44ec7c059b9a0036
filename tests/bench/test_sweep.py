"""Sweeps: from empty caches, proven; resumed; refused where they cannot be clean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.bench import run, sweep
from launcher.bench.aiperf import Load
from launcher.bench.point import Point
from launcher.bench.run import Plan
from launcher.bench.service import Service
from launcher.bench.sweep import Setup, Step
from launcher.bench.trace import make, write
from launcher.bench.trace.model import Shape
from launcher.cli import main
from launcher.findings import LauncherError
from launcher.target.resolve import resolve
from tests.bench.support import FakeAIPerf

ROWS = make.make(Shape(requests=120, isl=1024, osl=32, hit=0.8, block=64, limit=8192, active=8))
TARGET = resolve("sim").target


class FakeService:
    """A deployment whose caches are the fake AIPerf's file."""

    url = "http://127.0.0.1:1"

    def __init__(
        self, aiperf: FakeAIPerf, *, how: str = "restart", works: bool = True, fresh: bool = True
    ) -> None:
        self._aiperf, self.how, self._works, self.fresh = aiperf, how, works, fresh
        self.cleared = 0
        self.closed = False

    def clear(self) -> None:
        self.cleared += 1
        if self._works:
            self._aiperf.restart()

    def close(self) -> None:
        self.closed = True


def measured(
    root: Path, aiperf: FakeAIPerf, service: Service, steps: list[Step]
) -> tuple[list[Point], list[str]]:
    assert TARGET.workload is not None
    plan = Plan(TARGET, TARGET.workload, str(aiperf.path), given=ROWS, given_name="t", block=64)
    told: list[str] = []
    return sweep.measure(root, steps, lambda variant: Setup(plan, lambda: service), told.append), told


STEPS = [Step(4), Step(8)]


def test_caches_are_cleared_between_points_and_the_first_hits_prove_it(
    tmp_path: Path, aiperf: FakeAIPerf
) -> None:
    service = FakeService(aiperf)
    points, _ = measured(tmp_path, aiperf, service, STEPS)
    assert [point.clean for point in points] == [True, True]
    assert service.cleared == 1
    assert service.closed
    assert points[0].hit == pytest.approx(0.8, abs=0.02)
    assert aiperf.calls == [4, 8]


def test_a_clearing_that_does_nothing_is_noticed(tmp_path: Path, aiperf: FakeAIPerf) -> None:
    service = FakeService(aiperf, works=False)
    points, told = measured(tmp_path, aiperf, service, STEPS)
    assert [point.clean for point in points] == [True, False]
    assert any("left over" in line for line in told)
    # Tried once more, in vain.
    assert aiperf.calls == [4, 8, 8]


def test_somebody_elses_deployment_is_cleared_before_the_first_point_too(
    tmp_path: Path, aiperf: FakeAIPerf
) -> None:
    service = FakeService(aiperf, fresh=False)
    measured(tmp_path, aiperf, service, STEPS)
    assert service.cleared == 2


def test_what_is_measured_is_not_measured_again(tmp_path: Path, aiperf: FakeAIPerf) -> None:
    first, _ = measured(tmp_path, aiperf, FakeService(aiperf), STEPS[:1])
    (tmp_path / "c8").mkdir()
    (tmp_path / "c8" / "point.json").write_text('{"version": 1, "torn": ')
    aiperf.restart()
    again, told = measured(tmp_path, aiperf, FakeService(aiperf), STEPS)
    assert again[0] == first[0]
    assert "c4: measured before" in told
    assert aiperf.calls == [4, 8]


def test_a_deployment_is_stopped_when_a_point_fails(tmp_path: Path, aiperf: FakeAIPerf) -> None:
    aiperf.path.write_text("#!/bin/sh\necho 'Reason: no tokenizer'; exit 3\n")
    service = FakeService(aiperf)
    with pytest.raises(LauncherError, match="no tokenizer"):
        measured(tmp_path, aiperf, service, STEPS)
    assert service.closed


def test_a_folder_belongs_to_one_benchmark(tmp_path: Path) -> None:
    sweep.claim(tmp_path, {"seed": 1})
    sweep.claim(tmp_path, {"seed": 1})
    with pytest.raises(LauncherError, match="seed"):
        sweep.claim(tmp_path, {"seed": 2})


def test_folders_of_variants_are_readable_and_apart() -> None:
    names = {Step(4, variant).folder for variant in ("", "a.b=1,c=2", "a.b=1;c=2", "a.b=1/c=2")}
    assert len(names) == 4
    assert all("/" not in name for name in names)


def test_sessions_and_schedule_are_not_given_to_aiperf(tmp_path: Path, aiperf: FakeAIPerf) -> None:
    measured(tmp_path, aiperf, FakeService(aiperf), STEPS[:1])
    row = json.loads((tmp_path / "c4" / run.TRACE).read_text().splitlines()[0])
    assert set(row) == {"input_length", "output_length", "hash_ids"}


def test_the_command_line_of_aiperf() -> None:
    load = Load("http://x", "m", "tok", 256, 5120, 42, trace=Path("/t"), block=512, processes=4)
    words = " ".join(load.argv("aiperf", Path("/out")))
    for part in (
        "profile -m m --tokenizer tok --url http://x",
        "--use-server-token-count --extra-inputs ignore_eos:true",
        "--input-file /t --custom-dataset-type mooncake_trace --prompt-input-tokens-block-size 512",
        "--concurrency 256 --request-count 5120 --random-seed 42 --request-timeout-seconds 1200",
        "--workers-max 4",
    ):
        assert part in words
    plain = " ".join(Load("http://x", "m", "t", 8, 80, 1, isl=128, osl=1000).argv("aiperf", Path("/out")))
    assert "--isl 128 --osl 1000 --num-dataset-entries 80" in plain


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--target", "sim", "--url", "http://x", "--sweep", "1,2"], "--clear-command"),
        (["--target", "sim", "--url", "http://x", "--vary", "a=1"], "--vary"),
        (["--target", "sim", "--aiperf", "/none"], "aiperf-missing"),
        (["--target", "sim", "--sweep", "0"], "whole numbers"),
        (["--target", "simm"], "sim"),
        (["--compare", "/none", "/none"], "bench-no-result"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(
    words: list[str], told: str, aiperf: FakeAIPerf, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--aiperf" not in words:
        words = [*words, "--aiperf", str(aiperf.path)]
    assert main(["bench", *words]) == 2
    assert told in capsys.readouterr().err


def test_two_results_on_the_command_line(
    tmp_path: Path, aiperf: FakeAIPerf, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        aiperf.restart()
        measured(tmp_path / name, aiperf, FakeService(aiperf), STEPS)
    write.write(tmp_path / "t.jsonl", write.text(ROWS))
    assert main(["bench", "--compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert out.count("no difference shown") == 8
