"""`launcher bench` on real frontends, routers and mockers; with the real AIPerf where there is one."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from launcher.bench.trace import make, write
from launcher.bench.trace.model import Shape
from launcher.cli import main
from tests.bench.support import FakeAIPerf

pytestmark = pytest.mark.e2e
SMALL = ["--target", "sim", "--set", "workers.prefill.count=1", "--set", "workers.decode.count=1"]


def real_aiperf() -> str | None:
    """LAUNCHER_TEST_AIPERF, or one beside the interpreter, on PATH or in /opt/aiperf."""
    for found in (
        os.environ.get("LAUNCHER_TEST_AIPERF"),
        str(Path(sys.executable).with_name("aiperf")),
        shutil.which("aiperf"),
        "/opt/aiperf/bin/aiperf",
    ):
        if found and os.access(found, os.X_OK):
            return found
    return None


@pytest.mark.timeout(300)
def test_a_deployment_is_started_measured_and_stopped(
    tmp_path: Path, aiperf: FakeAIPerf, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = [
        "bench",
        *SMALL,
        "--state-dir",
        str(tmp_path / "s"),
        "--aiperf",
        str(aiperf.path),
        "--out",
        str(out),
    ]
    assert main([*words, "--requests", "16", "--sweep", "4"]) == 0
    captured = capsys.readouterr()
    assert "SIMULATED" in captured.out
    assert "ready in" in captured.err
    log = (out / "serve.log").read_text()
    assert "ready in" in log
    # Nothing of the run is left: its private folder goes last.
    assert not any((tmp_path / "s").iterdir())
    found = json.loads((out / "report.json").read_text())
    assert found["points"][0]["clean"] is True
    # The same command again measures nothing.
    assert main([*words, "--requests", "16", "--sweep", "4"]) == 0
    assert aiperf.calls == [4]
    assert main([*words, "--requests", "17", "--sweep", "4"]) == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_with_the_real_aiperf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = real_aiperf()
    if program is None:
        pytest.skip(
            "no AIPerf: LAUNCHER_TEST_AIPERF=PATH (uv venv DIR && uv pip install -p DIR aiperf==0.13.0)"
        )
    trace, out = tmp_path / "trace.jsonl", tmp_path / "out"
    shape = Shape(requests=60, isl=1024, osl=16, hit=0.7, block=64, limit=8192, active=8)
    write.write(trace, write.text(make.make(shape)))
    words = [
        "bench",
        *SMALL,
        "--aiperf",
        program,
        "--client-processes",
        "1",
        "--trace",
        str(trace),
        "--out",
        str(out),
    ]
    assert main([*words, "--sweep", "4,8"]) == 0
    found = json.loads((out / "report.json").read_text())
    assert [point["clean"] for point in found["points"]] == [True, True]
    for point in found["points"]:
        assert (point["ok"], point["errors"]) == (60, 0)
        assert point["hit"] == pytest.approx(0.7, abs=0.1)
    # Somebody else's deployment that is not cleared: the second run over the same trace is told apart.
    assert "<svg" in (out / "report.html").read_text()
    assert "AIPerf 0.1" in capsys.readouterr().out
