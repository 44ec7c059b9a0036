"""What is installed decides which flags exist, for Dynamo 1.3.1, 1.4.2 and 1.6.1."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launcher.checks import versions
from launcher.checks.base import run_checks
from launcher.checks.versions import dynamo_flags, releases, vllm_flags
from launcher.findings import Finding, Severity
from launcher.target.catalog import names
from tests.checks.flag_cases import LINES, MATRIX
from tests.checks.subjects import RELEASES, codes, machine_for, plan_of, resolved

ACCEPT = Path(__file__).parents[1] / "parsers" / "accept.py"
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def said(target: str, *sets: str, dynamo: str | None = None, **changes: Any) -> list[Finding]:
    """What the rules over versions say of a target with a release installed, renames included."""
    subject = resolved(target, *sets)
    machine = machine_for(target, dynamo, **changes)
    plan, renamed = plan_of(subject, machine)
    return [*renamed, *run_checks(versions.CHECKS, subject, plan, machine)]


def one(code: str, found: list[Finding]) -> Finding:
    codes(found)
    matching = [finding for finding in found if finding.code == code]
    assert len(matching) == 1, found
    return matching[0]


@pytest.mark.parametrize("dynamo", RELEASES)
@pytest.mark.parametrize("name", names())
def test_every_target_is_taken_by_every_release(name: str, dynamo: str) -> None:
    found = said(name, dynamo=dynamo)
    assert not [finding for finding in found if finding.severity is ERROR], found
    assert not codes(found) & {"flag-unknown", "flag-version", "flag-value"}


@pytest.mark.parametrize("name", names())
def test_nothing_installed_means_the_validated_release(name: str) -> None:
    assert not [finding for finding in said(name) if finding.severity is ERROR]
    known = said("h200-agg", "engine.args.mm-hasher-algorithm=sha256")
    assert one("flag-version", known).what.startswith("vLLM 0.23.0 has no --mm-hasher-algorithm")


@pytest.mark.parametrize("dynamo", RELEASES)
@pytest.mark.parametrize(
    ("target", "change", "code", "where", "says", "fix"), MATRIX, ids=lambda value: str(value)[:50]
)
def test_a_flag_in_each_release(
    target: str, change: str, code: str, where: str, says: str, fix: str, dynamo: str
) -> None:
    found = said(target, change, dynamo=dynamo)
    about_flags = [finding for finding in found if finding.code.startswith("flag-")]
    if dynamo not in where.split():
        assert code not in codes(about_flags), about_flags
        return
    finding = one(code, about_flags)
    assert says in finding.what
    assert fix in finding.fix
    assert finding.severity is (WARNING if code in ("flag-deprecated", "flag-renamed") else ERROR)
    assert finding.where.startswith("--set"), finding.where


def test_a_renamed_flag_is_in_the_plan_under_its_new_name() -> None:
    subject = resolved("gb200-trtllm-agg", "engine.args.publish-events-and-metrics=true")
    plan, _ = plan_of(subject, machine_for("gb200-trtllm-agg", "1.6.1"))
    argv = plan.workers[0].argv
    assert {"--publish-kv-events", "--publish-metrics"} <= set(argv)
    assert "--publish-events-and-metrics" not in argv
    plan, said_nothing = plan_of(subject, machine_for("gb200-trtllm-agg", "1.3.1"))
    assert "--publish-events-and-metrics" in plan.workers[0].argv
    assert not said_nothing


def test_a_release_that_is_not_on_record_is_judged_by_the_closest_and_gently() -> None:
    change = "frontend.args.router-reset-states=true"
    found = said("h200-agg", change, dynamo="1.5.0")
    assert one("flag-version", found).severity is WARNING
    assert "not on record" in one("flag-version", found).why
    assert "dynamo-release" in codes(found)
    # The same series: no word about the release.
    assert "dynamo-release" not in codes(said("h200-agg", dynamo="1.6.0"))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.3.1", ("1.3.1", True)),
        ("1.3.1.post1", ("1.3.1", True)),
        ("1.3.0", ("1.3.1", False)),
        ("1.5.0", ("1.4.2", False)),
        ("1.2.1", ("1.3.1", False)),
        ("9.0", ("1.6.1", False)),
        ("", ("1.3.1", False)),
        ("main", ("1.3.1", False)),
    ],
)
def test_the_closest_release(version: str, expected: tuple[str, bool]) -> None:
    assert releases.closest(version, RELEASES) == expected


def test_known_bad_combinations() -> None:
    assert "eagle3-disagg" in codes(said("h200-disagg", dynamo="1.3.1"))
    assert "eagle3-disagg" in codes(said("b200-disagg"))  # validated with 1.3.1
    assert "eagle3-disagg" not in codes(said("h200-disagg", dynamo="1.4.2"))
    assert "eagle3-disagg" not in codes(said("h200-disagg", "speculative=null", dynamo="1.3.1"))
    assert "eagle3-disagg" not in codes(said("h200-agg", dynamo="1.3.1"))
    assert one("trt-postprocess", said("gb200-trtllm-disagg", dynamo="1.6.1")).severity is INFO
    assert "trt-postprocess" not in codes(said("gb200-trtllm-disagg", dynamo="1.3.1"))


def test_skew_and_pins() -> None:
    found = said("h200-agg", dynamo="1.6.1")
    assert one("version-skew", found).severity is INFO
    assert "version-pin" not in codes(found)
    assert "version-skew" not in codes(said("h200-agg", dynamo="1.3.1"))
    odd = {"ai-dynamo": "1.3.1", "vllm": "0.26.0"}
    assert "which pins 0.23.0" in one("version-pin", said("h200-agg", packages=odd)).what
    odd = {"ai-dynamo": "1.4.2", "tensorrt-llm": "1.3.0rc14"}
    assert "which pins 1.3.0rc22" in one("version-pin", said("gb200-trtllm-agg", packages=odd)).what
    right = {"ai-dynamo": "1.4.2", "tensorrt-llm": "1.3.0rc22"}
    assert "version-pin" not in codes(said("gb200-trtllm-agg", packages=right))
    assert not codes(said("sim", dynamo="1.6.1"))


def installed(
    target: str, packages: dict[str, str], python: str = "/usr/bin/env", **changes: Any
) -> list[Finding]:
    subject, machine = resolved(target), machine_for(target, packages=packages, **changes)
    plan, _ = plan_of(subject, machine)
    processes = [dataclasses.replace(process, argv=(python, *process.argv[1:])) for process in plan.processes]
    plan = dataclasses.replace(plan, processes=tuple(processes))
    return list(run_checks((*versions.INTERPRETER, *versions.INSTALLED), subject, plan, machine))


def test_what_is_not_installed() -> None:
    everything = {"ai-dynamo": "1.3.1", "vllm": "0.23.0", "nixl-cu13": "1.1.0"}
    assert not installed("h200-disagg", everything)
    assert codes(installed("h200-disagg", {})) == {"dynamo-missing", "engine-missing", "nixl-missing"}
    assert codes(installed("h200-agg", {"ai-dynamo": "1.3.1"})) == {"engine-missing"}
    assert codes(installed("gb200-trtllm-disagg", {"ai-dynamo": "1.3.1"})) == {"engine-missing"}
    assert codes(installed("h200-disagg", everything, python="/nowhere/python")) == {"python-missing"}
    assert codes(installed("sim", {})) == {"dynamo-missing"}
    assert not installed("h200-disagg", {}, simulated=True)


def test_records_have_every_release() -> None:
    assert dynamo_flags.recorded() == sorted(RELEASES)
    assert vllm_flags.recorded() == sorted(RELEASES.values())


# Against the real parsers ----------------------------------------------------------------------------


@pytest.mark.compat
@pytest.mark.parametrize("release", RELEASES)
def test_the_records_say_what_the_real_parsers_say(release: str) -> None:
    python = Path(
        os.environ.get(f"LAUNCHER_TEST_DYNAMO_{release.replace('.', '_')}", f"/opt/dyn/{release}/bin/python")
    )
    if not python.exists():
        pytest.skip(f"no Dynamo {release} at {python}")
    questions = [{"module": module, "argv": argv, "env": {}} for module, argv in LINES]
    done = subprocess.run(
        [str(python), str(ACCEPT)],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    for (module, argv), answer in zip(LINES, json.loads(done.stdout), strict=True):
        parsed = dynamo_flags.parse(module, argv, release)
        accepted = not parsed.problems and (module == "dynamo.vllm" or not parsed.left_over)
        assert accepted == answer["accepted"], (module, argv, answer["error"], parsed.problems)
        if module == "dynamo.vllm" and answer["accepted"]:
            assert parsed.left_over == answer["left_over"]
