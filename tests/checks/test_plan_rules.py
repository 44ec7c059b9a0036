"""Rules over plans, and over the environment that the launcher was started with."""

from __future__ import annotations

import dataclasses

import pytest

from launcher.checks import inherited
from launcher.checks import plan as plan_checks
from launcher.checks.base import background_of, run_checks
from launcher.checks.plan import spread
from launcher.findings import Finding, Severity
from launcher.plan.join import Join
from launcher.plan.model import Plan, Role
from launcher.target.catalog import names
from tests.checks.subjects import codes, machine_for, plan_of, resolved

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def said(target: str, *sets: str, change: dict[str, dict[str, str]] | None = None) -> list[Finding]:
    """What the rules over plans say; `change` gives variables to processes by name."""
    subject, machine = resolved(target, *sets), machine_for(target)
    plan, _ = plan_of(subject, machine)
    if change:
        plan = with_env(plan, change)
    return list(run_checks(plan_checks.CHECKS, subject, plan, machine))


def with_env(plan: Plan, change: dict[str, dict[str, str]]) -> Plan:
    processes = [
        dataclasses.replace(process, env={**process.env, **change.get(process.name, {})})
        for process in plan.processes
    ]
    return dataclasses.replace(plan, processes=tuple(processes))


@pytest.mark.parametrize("name", names())
def test_every_target_as_it_is(name: str) -> None:
    assert not said(name)


def one(found: list[Finding], code: str) -> Finding:
    codes(found)
    return next(finding for finding in found if finding.code == code)


def test_the_drain_must_fit_the_grace_period() -> None:
    finding = one(said("h200-disagg", "deadlines.grace_s=40"), "grace-short")
    assert "pause 5, frontend 5, decode 21, prefill 21, 3 to kill" in finding.what
    assert "--set deadlines.grace_s=55" in finding.fix
    assert "grace-short" not in codes(said("h200-disagg", "deadlines.grace_s=55"))
    assert "grace-short" in codes(said("gb200-trtllm-disagg", "deadlines.grace_s=120"))


def test_a_start_deadline_that_no_model_meets() -> None:
    assert one(said("h200-agg", "deadlines.start_s=60"), "start-short").severity is WARNING
    assert "start-short" not in codes(said("h200-agg", "deadlines.start_s=300"))
    assert not said("sim", "deadlines.start_s=60")


def test_two_sockets_of_one_port() -> None:
    found = said("h200-disagg", "network.http_port=20003", "network.admin_port=20003")
    assert "both the API's and the admin server's" in one(found, "port-twice").what
    assert "port-twice" in codes(said("h200-disagg", "network.http_port=20003"))


def test_one_model_cache_for_all() -> None:
    finding = one(said("h200-agg", "engine.env.HF_HOME=/a"), "cache-split")
    assert "'' and '/a'" in finding.what
    assert "frontend have none" in finding.fix
    assert not said("h200-agg", "engine.env.HF_HOME=/a", "frontend.env.HF_HOME=/a")


def test_one_discovery_backend_for_all() -> None:
    found = said("h200-agg", "engine.env.DYN_DISCOVERY_BACKEND=etcd")
    assert "etcd and file" in one(found, "discovery-mixed").what
    both = ("engine.env.DYN_DISCOVERY_BACKEND=", "frontend.env.DYN_DISCOVERY_BACKEND=")
    assert not said("h200-agg", *(name + "etcd" for name in both))
    assert "'etcd'" in one(said("h200-agg", *(name + "etc" for name in both)), "discovery-unknown").fix


@pytest.mark.parametrize(
    ("backend", "host", "code"),
    [
        ("etcd", "10.0.0.2", "planes-open"),
        ("kubernetes", "10.0.0.2", "planes-open"),
        ("etcd", "127.0.0.1", "advertise-loopback"),
    ],
)
def test_who_reaches_the_planes_past_one_node(backend: str, host: str, code: str) -> None:
    subject, machine = resolved("sim"), machine_for("sim")
    plan, _ = plan_of(subject, machine)
    plan = dataclasses.replace(plan, join=Join(backend, host, "eth0", "sim", "node"))
    (finding,) = spread.planes(subject, plan, machine)
    assert (finding.code, finding.severity is ERROR) == (code, False)


@pytest.mark.parametrize(("allowed", "severity"), [(False, ERROR), (True, WARNING)])
def test_vllms_roles_on_different_nodes(allowed: bool, severity: Severity) -> None:
    subject, machine = resolved("h200-disagg"), machine_for("h200-disagg")
    plan, _ = plan_of(subject, machine)
    processes = tuple(process for process in plan.processes if process.role is Role.PREFILL)
    plan = dataclasses.replace(
        plan, processes=processes, join=Join("etcd", "10.0.0.2", roles=("prefill",), disagg=allowed)
    )
    (finding,) = spread.disaggregated(subject, plan, machine)
    assert (finding.code, finding.severity) == ("disagg-nodes", severity)


@pytest.mark.parametrize(
    ("backend", "dynamo", "told"),
    [("etcd", "1.3.1", True), ("etcd", "1.4.2", True), ("etcd", "1.6.1", False), ("file", "1.3.1", False)],
)
def test_what_earlier_releases_cannot_do_past_one_node(backend: str, dynamo: str, told: bool) -> None:
    subject, machine = resolved("sim"), machine_for("sim")
    machine = dataclasses.replace(machine, packages={**machine.packages, "ai-dynamo": dynamo})
    plan, _ = plan_of(subject, machine)
    plan = dataclasses.replace(plan, join=Join(backend, "10.0.0.2", "eth0", "sim", "node"))
    assert [finding.code for finding in spread.release(subject, plan, machine)] == ["nodes-release"] * told


def test_every_code_of_a_plan_is_seen() -> None:
    seen = {"grace-short", "start-short", "port-twice", "cache-split", "discovery-mixed", "discovery-unknown",
            "disagg-nodes", "advertise-loopback", "planes-open", "nodes-release"}  # fmt: skip
    declared = {code for check in plan_checks.CHECKS for code in check.codes}
    assert declared == seen
    assert all(background_of(plan_checks.CHECKS, code) for code in declared)


# The environment ------------------------------------------------------------------------------------


def around(target: str, environ: dict[str, str], *sets: str) -> list[Finding]:
    """What is said about an environment."""
    subject, machine = resolved(target, *sets), machine_for(target)
    plan, _ = plan_of(subject, machine)
    return list(run_checks(inherited.CHECKS, subject, plan, machine, environ))


def test_ambient_dynamo_variables_are_dropped_and_said() -> None:
    environ = {"DYN_ROUTER_MODE": "random", "DYN_NAMESPACE": "mine", "DYN_LOG": "debug", "PATH": "/bin"}
    finding = one(around("sim", environ), "env-dropped")
    assert finding.what == "DYN_NAMESPACE, DYN_ROUTER_MODE are set here and not passed on"
    assert "--set engine.env.DYN_NAMESPACE=mine" in finding.fix
    router = one(around("sim", {"DYN_ROUTER_MODE": "random"}), "env-dropped")
    assert "--set frontend.env.DYN_ROUTER_MODE=random" in router.fix
    secret = one(around("sim", {"DYN_API_KEY": "s3cret"}), "env-dropped")
    assert "s3cret" not in secret.line()
    assert not around("sim", {"DYN_LOG": "debug", "PATH": "/bin"})


def test_a_batch_job_around_the_launcher() -> None:
    environ = {"SLURM_JOB_ID": "1", "PMIX_RANK": "0"}
    assert one(around("gb200-trtllm-agg", environ), "env-mpi").severity is INFO
    assert not around("h200-agg", environ)


def test_engine_variables_that_no_target_states() -> None:
    finding = one(around("h200-disagg", {"VLLM_USE_V1": "0", "NCCL_DEBUG": "INFO"}), "env-inherited")
    assert "NCCL_DEBUG, VLLM_USE_V1" in finding.what
    # The plan sets it itself, so what was inherited does not count.
    assert not around("h200-disagg", {"NCCL_P2P_LEVEL": "PIX"})
    assert not around("sim", {"VLLM_USE_V1": "0"})


def test_a_quantization_left_in_the_environment() -> None:
    name = "OVERRIDE_QUANT_ALGO"
    assert one(around("gb200-trtllm-agg", {name: "W4A8_MXFP4_MXFP8"}), "env-quant").severity is WARNING
    assert one(around("gb200-trtllm-agg", {name: "W4A8"}), "env-quant").severity is ERROR
    # The target states its own, and the engine is no TensorRT-LLM.
    assert "env-quant" not in codes(around("gb200-trtllm-disagg", {name: "W4A8"}))
    assert "env-quant" not in codes(around("h200-agg", {name: "W4A8"}))


def test_every_code_of_the_environment_is_seen() -> None:
    declared = {code for check in inherited.CHECKS for code in check.codes}
    assert declared == {"env-dropped", "env-mpi", "env-inherited", "env-quant"}


def test_what_a_child_sees() -> None:
    plan, _ = plan_of(resolved("sim"), machine_for("sim"))
    child = inherited.child_env(
        plan.process("frontend"), {"SLURM_X": "1", "DYN_Y": "1", "HF_HOME": "/h"}, plan.scrub
    )
    assert "SLURM_X" not in child
    assert "DYN_Y" not in child
    assert child["HF_HOME"] == "/h"
    assert child["DYN_DISCOVERY_BACKEND"] == "file"
