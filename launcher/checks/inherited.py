"""The environment that the launcher itself was started with: what children get of it, and what not."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping

from launcher.checks.base import Check, Group
from launcher.checks.machine.base import gpu_workers, listed
from launcher.engines import environment
from launcher.findings import Exit, Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan, Process
from launcher.target.resolve import Resolved

ENGINE_READS = (
    "VLLM_*",
    "TRTLLM_*",
    "TRT_LLM_*",
    "TLLM_*",
    "OVERRIDE_QUANT_ALGO",
    "UCX_*",
    "NCCL_*",
    "TORCH_*",
    "TRITON_*",
)
"""Variables that change what an engine does; whoever starts the launcher hands them on."""
MPI = ("SLURM_*", "PMI_*", "PMIX_*", "OMPI_COMM_*", "OMPI_UNIVERSE_*")


def child_env(process: Process, environ: Mapping[str, str], scrub: tuple[str, ...]) -> dict[str, str]:
    """What a child will see: the launcher's own environment less what is scrubbed, under what the plan sets."""
    kept = {
        name: value
        for name, value in environ.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in scrub)
    }
    return kept | dict(process.env)


def dropped(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """`DYN_*` variables of the launcher's own environment reach no child.

    Each of them silently sets a flag's default: DYN_ROUTER_MODE in a worker's environment even wins over the frontend's
    own (Dynamo 1.6.1), DYN_TRTLLM_* over the target's. What the plan shows is all that Dynamo gets. DYN_LOG is a
    person's choice of log level and is passed on.
    """
    names = sorted(name for name in environ if name.startswith("DYN_") and name not in environment.PASSED_ON)
    if not names:
        return
    name = names[0]
    frontend = name.startswith(("DYN_ROUTER", "DYN_HTTP", "DYN_KV", "DYN_MIGRATION"))
    where = "frontend.env" if frontend else "engine.env"
    yield Finding(
        code="env-dropped",
        what=f"{listed(names)} {'is' if len(names) == 1 else 'are'} set here and not passed on",
        severity=Severity.WARNING,
        where="the environment",
        why="ambient DYN_* variables change flags that no command line shows",
        fix=f"what is wanted goes into the target: --set {where}.{name}={environ[name] or '...'}"
        if not _secret(name)
        else f"what is wanted goes into the target's {where}",
    )


def _secret(name: str) -> bool:
    from launcher.plan.model import is_secret

    return is_secret(name)


def other_world(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Variables of a batch system or another MPI make TensorRT-LLM's ranks join the wrong world; no child gets them."""
    names = sorted(name for name in environ if any(fnmatch.fnmatchcase(name, pattern) for pattern in MPI))
    if names and resolved.target.engine.kind == "trtllm":
        yield Finding(
            code="env-mpi",
            what=f"{listed(names)}: the launcher runs inside a batch job or another MPI",
            severity=Severity.INFO,
            where="the environment",
            why="ranks that inherit them wait for peers of the other job; they are not passed on",
            link="dynamo#992, dynamo#808",
        )


def handed_on(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Engine variables that were set around the launcher reach every worker, and no target says so.

    The next deployment of the same target, elsewhere, behaves differently.
    """
    workers = gpu_workers(plan)
    if not workers:
        return
    set_by_plan = set().union(*(process.env for process in workers))
    names = sorted(
        name
        for name in environ
        if name not in set_by_plan and any(fnmatch.fnmatchcase(name, pattern) for pattern in ENGINE_READS)
    )
    if names:
        yield Finding(
            code="env-inherited",
            what=f"{listed(names)} of this environment {'reaches' if len(names) == 1 else 'reach'} every worker",
            severity=Severity.INFO,
            where="the environment",
            why="the same target behaves differently where they are not set",
            fix=f"state them in the target (engine.env.{names[0]}), or unset them",
        )


def quantization(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """OVERRIDE_QUANT_ALGO left in the environment changes the number format of every TensorRT-LLM worker."""
    from launcher.checks.target.trtllm.variables import ALGORITHMS, QUANT

    value = environ.get(QUANT)
    stated = any(QUANT in process.env for process in plan.workers)
    if value is None or stated or resolved.target.engine.kind != "trtllm":
        return
    yield Finding(
        code="env-quant",
        what=f"{QUANT}={value} comes from this environment, not from the target",
        severity=Severity.WARNING if value.upper() in ALGORITHMS else Severity.ERROR,
        where="the environment",
        why="every worker would compute in another number format than the target says"
        if value.upper() in ALGORITHMS
        else "the engine logs an unknown value and ignores it",
        fix=f"unset {QUANT}, or --set engine.env.{QUANT}="
        + (value if value.upper() in ALGORITHMS else ALGORITHMS[0]),
    )


CHECKS: tuple[Check, ...] = (
    Check(dropped, ("env-dropped",)),
    Check(other_world, ("env-mpi",)),
    Check(handed_on, ("env-inherited",)),
    Check(quantization, ("env-quant",)),
)

GROUP = Group("environment", CHECKS, Exit.USAGE)
