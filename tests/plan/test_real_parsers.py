"""Every generated command line is taken by the real parsers, of each supported Dynamo release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.model import Role
from launcher.target import catalog
from tests.parsers.vllm_flags import VLLM_OF_DYNAMO, check_vllm_flags
from tests.support.plans import MACHINES, plan

ACCEPT = Path(__file__).parents[1] / "parsers" / "accept.py"
EXPECTED_MODULES = {"dynamo.frontend", "dynamo.mocker", "dynamo.vllm", "dynamo.trtllm"}


def command_lines() -> list[dict[str, Any]]:
    """The Dynamo command lines of all targets, with the target's own engine and with the simulator."""
    lines: list[dict[str, Any]] = []
    for target in catalog.names():
        for engine in ("auto", "mocker"):
            found = plan(target, engine=engine)
            for process in found.processes:
                if process.role is Role.HELPER:
                    continue
                lines.append(
                    {
                        "name": f"{target}/{engine}/{process.name}",
                        "module": process.argv[2],
                        "argv": list(process.argv[3:]),
                        "env": dict(process.env),
                    }
                )
    return lines


def interpreter(release: str) -> str:
    name = "LAUNCHER_TEST_DYNAMO_" + release.replace(".", "_")
    path = Path(os.environ.get(name, f"/opt/dyn/{release}/bin/python"))
    if not path.exists():
        pytest.skip(f"no ai-dynamo {release} at {path}; see CONTRIBUTING.md")
    return str(path)


def check(python: str, release: str) -> None:
    lines = command_lines()
    assert {line["module"] for line in lines} == EXPECTED_MODULES
    done = subprocess.run(
        [python, str(ACCEPT)],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len(answers) == len(lines)
    refused = []
    for line, answer in zip(lines, answers, strict=True):
        if not answer["accepted"]:
            refused.append(f"{line['name']}: {answer['error']}")
        elif line["module"] == "dynamo.vllm":
            problems = check_vllm_flags(answer["left_over"], VLLM_OF_DYNAMO[release])
            refused += [f"{line['name']}: {problem}" for problem in problems]
        elif answer["left_over"]:
            refused.append(f"{line['name']}: left over {answer['left_over']}")
    assert refused == []


def test_accepted_by_the_installed_release() -> None:
    check(sys.executable, "1.6.1")


@pytest.mark.compat
@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
def test_accepted_by_other_releases(release: str) -> None:
    check(interpreter(release), release)


def test_all_targets_have_a_machine() -> None:
    assert sorted(MACHINES) == catalog.names()
