"""Running the launcher's planning on bad input, within its time limit."""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.checks import report as reports
from launcher.cli import common, planning
from launcher.findings import LauncherError

CPU_S = 1.0
"""The issue's limit, in CPU seconds: these machines are shared, and a wall clock measures the neighbours."""
WALL_S = 20
"""After this something hangs."""


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Fails where the body takes more CPU than it may, or hangs."""

    def hung(*_: object) -> None:
        raise AssertionError(f"hangs: nothing for {WALL_S} s")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(WALL_S)
    began = time.process_time()
    try:
        yield
        assert time.process_time() - began < CPU_S
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def plan_or_findings(**values: Any) -> str:
    """`plan`, or the codes of the findings; anything else is raised. All checks are run, errors gathered."""
    arguments = argparse.Namespace(**{"machine": "H200:8", **values})
    with quick():
        try:
            loaded = common.load(arguments)
            report = reports.Report()
            with planning.planned(loaded, run_name="fuzz", report=report) as planned:
                reports.before_start(
                    report, loaded.resolved, planned.plan, planned.machine, {}, planned.ignores
                )
                planned.plan.to_json()
        except LauncherError as error:
            return _codes(error)
    failed = [finding.what for finding in report.findings if finding.code == "check-failed"]
    assert not failed, failed
    return "plan"


def _codes(error: LauncherError) -> str:
    assert error.findings
    assert all(finding.what and "\n" not in finding.line() for finding in error.findings), error
    return " ".join(finding.code for finding in error.findings)


def target_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "fuzz.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return path


def loads(path: Path | str) -> str:
    """What is said about a target that cannot be read."""
    with pytest.raises(LauncherError) as caught, quick():
        common.load(argparse.Namespace(target=str(path)))
    return " ".join(finding.line() for finding in caught.value.findings)
