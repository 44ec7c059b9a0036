"""What is installed, against what the target needs; read from metadata, nothing is imported."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from launcher.checks.versions import dynamo_flags, releases
from launcher.checks.versions.releases import TRTLLM_OF_DYNAMO, VLLM_OF_DYNAMO
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan
from launcher.target.resolve import Resolved
from launcher.target.schema import Target

PACKAGES = {"vllm": "vllm", "trtllm": "tensorrt-llm"}
NIXL = ("nixl", "nixl-cu12", "nixl-cu13")


def present(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Dynamo, the engine and NIXL must be installed for the interpreter that runs the processes.

    In NVIDIA's runtime images they are. A missing one is an ImportError in every process, restarted until the budget
    is spent.
    """
    target = resolved.target
    python = plan.processes[0].argv[0]
    if machine.simulated or not _runs(python):
        return
    yield from no_dynamo(target, python, machine.packages)
    package = PACKAGES.get(target.engine.kind)
    if package is not None and package not in machine.packages:
        yield Finding(
            code="engine-missing",
            what=f"no {package} for {python}",
            where=resolved.origin("engine", "kind"),
            why="every worker would exit at its first import",
            fix=f"run in {target.validated.image}, or simulate with --engine mocker",
        )
    transfer = target.kv.transfer
    needs_nixl = not plan.simulated and transfer is not None and transfer.connector == "nixl"
    # TensorRT-LLM brings a NIXL of its own.
    if needs_nixl and target.engine.kind == "vllm" and not any(name in machine.packages for name in NIXL):
        yield Finding(
            code="nixl-missing",
            what=f"no nixl for {python}",
            where=resolved.origin("kv", "transfer", "connector"),
            why="vLLM's NixlConnector fails while it loads",
            fix=f"run in {target.validated.image}, or install nixl",
        )


def python(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """`--python` names the interpreter that the processes run under; it must be there, and a program."""
    if not machine.simulated:
        yield from no_program(plan.processes[0].argv[0])


def no_dynamo(target: Target, python: str, packages: Mapping[str, str]) -> Iterator[Finding]:
    """An interpreter without Dynamo, by what is installed for it; also of commands that start no deployment."""
    # A simulated target says in words that it needs no image.
    image = f"run in {target.validated.image}, " if " " not in target.validated.image else ""
    if "ai-dynamo" not in packages:
        yield Finding(
            code="dynamo-missing",
            what=f"{python} is no Python with ai-dynamo",
            where="--python",
            why="no process could start",
            fix=f"{image}install ai-dynamo for it, or name the interpreter that has it (--python)",
        )


def no_program(path: str) -> Iterator[Finding]:
    """An interpreter that is none; also of commands that start no deployment."""
    if not _runs(path):
        yield Finding(
            code="python-missing",
            what=f"{path} is no program that can be run",
            where="--python",
            why="no process could start",
            fix="give the interpreter that has ai-dynamo installed",
        )


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def tried(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """This launcher was tried with Dynamo 1.3.1, 1.4.2 and 1.6.1; another release is taken for the closest of them."""
    found = releases.of(resolved.target, machine.packages)
    if not found.dynamo_installed:
        return
    release, exact = releases.closest(found.dynamo, dynamo_flags.recorded())
    if not exact and releases.series(release) != releases.series(found.dynamo):
        yield Finding(
            code="dynamo-release",
            what=f"Dynamo {found.dynamo} is installed; tried are {', '.join(dynamo_flags.recorded())}",
            severity=Severity.WARNING,
            where=plan.processes[0].argv[0],
            why="flags, variables and health pages change from release to release; some may not be as expected",
            fix=f"Dynamo {release}, or look at the first start closely",
        )


def skew(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """The releases that a target was validated with, those that are installed, and those that Dynamo pins.

    A target's kernels, memory shares and published figures hold for its own releases. Dynamo and an engine that it
    does not pin fail in ways that neither project tests.
    """
    target = resolved.target
    found = releases.of(target, machine.packages)
    if plan.simulated or not found.dynamo_installed:
        return
    validated = target.validated.dynamo
    if releases.series(found.dynamo) != releases.series(validated):
        yield Finding(
            code="version-skew",
            what=f"Dynamo {found.dynamo} is installed, {target.name} was validated with {validated}",
            severity=Severity.INFO,
            where=resolved.origin("validated", "dynamo"),
            why="its tuning and published figures were measured on that release",
            fix=f"{target.validated.image} for the same figures",
        )
    pins = {
        "vllm": VLLM_OF_DYNAMO.get(releases.closest(found.dynamo, VLLM_OF_DYNAMO)[0], ""),
        "trtllm": TRTLLM_OF_DYNAMO.get(releases.series(found.dynamo), ""),
    }
    pinned = pins.get(target.engine.kind, "")
    if found.engine_installed and pinned and _differ(found.engine, pinned):
        yield Finding(
            code="version-pin",
            what=f"{PACKAGES[target.engine.kind]} {found.engine} with Dynamo {found.dynamo}, which pins {pinned}",
            severity=Severity.WARNING,
            where=plan.processes[0].argv[0],
            why="the combination is tested by nobody; arguments and internal names may not fit",
            fix=f"install {PACKAGES[target.engine.kind]}=={pinned}, or the matching runtime image",
            link="aiconfigurator#1443, srt-slurm#223",
        )


def _differ(installed: str, pinned: str) -> bool:
    if "rc" in pinned:  # 1.3.0rc14 and 1.3.0rc29 are as far apart as two releases
        return installed.partition("+")[0] != pinned
    return releases.series(installed) != releases.series(pinned)
