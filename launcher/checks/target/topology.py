"""Which roles there are, how many workers, and on how many GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import is_gpt_oss, is_real
from launcher.engines import registry
from launcher.findings import Finding, Severity, did_you_mean
from launcher.plan import gpus
from launcher.plan.model import Role
from launcher.target.resolve import Resolved

HEADS = 64
"""Attention heads of gpt-oss (20b and 120b); a tensor-parallel rank takes a whole number of them."""


def engine_known(resolved: Resolved) -> Iterator[Finding]:
    """The engine must be one of those that this launcher has: vllm, trtllm, mocker, echo."""
    kind = resolved.target.engine.kind
    if kind not in registry.ENGINES:
        yield Finding(
            code="engine-unknown",
            what=f"there is no engine {kind!r}",
            where=resolved.origin("engine", "kind"),
            why="nothing could be started",
            fix=did_you_mean(kind, registry.ENGINES),
        )


def roles(resolved: Resolved) -> Iterator[Finding]:
    """A deployment has aggregated workers alone, or prefill and decode workers together.

    A request is computed by one aggregated worker, or its prompt by a prefill worker and its answer by a decode
    worker. One half alone can finish no request; with all three Dynamo's router has no rule which to take.
    """
    workers = resolved.target.workers
    present = {role for role, _ in workers.items()}
    if not present:
        yield Finding(
            code="workers-none",
            what="the target has no worker",
            where=resolved.origin("workers"),
            why="nobody would answer",
            fix="give workers.aggregated.count, or workers.prefill.count and workers.decode.count, at least 1",
        )
    elif Role.AGGREGATED in present and len(present) > 1:
        yield Finding(
            code="workers-mixed",
            what="aggregated workers beside " + " and ".join(sorted(present - {Role.AGGREGATED})),
            where=resolved.origin("workers", "aggregated", "count"),
            why="the router sends a request either to one aggregated worker or through prefill and decode",
            fix="set workers.aggregated.count=0, or the others to 0",
        )
    elif present in ({Role.PREFILL}, {Role.DECODE}):
        only = next(iter(present))
        other = Role.DECODE if only is Role.PREFILL else Role.PREFILL
        yield Finding(
            code="workers-half",
            what=f"{only} workers without {other} workers",
            where=resolved.origin("workers", other.value, "count"),
            why="no request could be finished",
            fix=f"workers.{other}.count of at least 1",
        )


def min_ready(resolved: Resolved) -> Iterator[Finding]:
    """`min_ready` is how many workers of a role must be healthy for the deployment to count as ready.

    More than there are can never be reached; with 0 the deployment stays ready while nobody can answer.
    """
    for role, group in resolved.target.workers.items():
        where = resolved.origin("workers", role.value, "min_ready")
        if group.min_ready is not None and group.min_ready > group.count:
            yield Finding(
                code="min-ready",
                what=f"workers.{role}.min_ready is {group.min_ready} of {group.count} workers",
                where=where,
                why="the deployment would never become ready",
                fix=f"at most {group.count}",
            )
        elif group.min_ready == 0:
            yield Finding(
                code="min-ready-zero",
                what=f"workers.{role}.min_ready is 0",
                severity=Severity.WARNING,
                where=where,
                why=f"/readyz stays 200 with every {role} worker down, and requests fail",
                fix=f"1 to {group.count}",
            )


def gpu_count(resolved: Resolved) -> Iterator[Finding]:
    """`hardware.gpus` is what a pod asks the cluster for; the workers must take exactly that many.

    More workers than GPUs cannot start, fewer leave GPUs idle that somebody pays for.
    """
    target = resolved.target
    stated, taken = target.hardware.gpus, gpus.needed(target)
    if not is_real(target) or not stated or stated == taken:
        return
    yield Finding(
        code="gpus-stated",
        what=f"the workers take {taken} GPUs, hardware.gpus is {stated}",
        severity=Severity.ERROR if taken > stated else Severity.WARNING,
        where=resolved.origin("hardware", "gpus"),
        why="the pod would ask for too few"
        if taken > stated
        else f"{stated - taken} would be paid for and idle",
        fix=f"--set hardware.gpus={taken}, or other workers.*.count",
    )


def node_size(resolved: Resolved) -> Iterator[Finding]:
    """All processes of one launcher run on one node, and a node has so many GPUs (a GB200 tray 4, an HGX board 8)."""
    target = resolved.target
    per_node = target.hardware.gpus_per_node
    if not is_real(target) or per_node is None:
        return
    if gpus.needed(target) > per_node:
        yield Finding(
            code="node-small",
            what=f"{target.name} takes {gpus.needed(target)} GPUs, a node of {'/'.join(target.hardware.gpu)} "
            f"may have only {per_node}",
            severity=Severity.WARNING,
            where=resolved.origin("hardware", "gpus_per_node"),
            why="on such a node one pod cannot hold it",
            fix="an 8-GPU node (B200), or the roles on two nodes",
        )
    for role, workers in target.workers.items():
        if workers.tensor_parallel > max(per_node, 8):
            yield Finding(
                code="tp-node",
                what=f"workers.{role}.tensor_parallel is {workers.tensor_parallel}",
                where=resolved.origin("workers", role.value, "tensor_parallel"),
                why=f"one worker's GPUs must be on one node, which has {max(per_node, 8)} at most",
                fix=f"at most {max(per_node, 8)}",
            )


def tensor_parallel(resolved: Resolved) -> Iterator[Finding]:
    """The tensor parallel size must divide the model's attention heads (64 for gpt-oss).

    The engine says so itself, after minutes of imports.
    """
    target = resolved.target
    if not is_real(target) or not is_gpt_oss(target):
        return
    for role, workers in target.workers.items():
        if HEADS % workers.tensor_parallel:
            near = min((1, 2, 4, 8, 16, 32, 64), key=lambda size: (abs(size - workers.tensor_parallel), size))
            yield Finding(
                code="tp-heads",
                what=f"workers.{role}.tensor_parallel is {workers.tensor_parallel}, "
                f"which does not divide the model's {HEADS} attention heads",
                where=resolved.origin("workers", role.value, "tensor_parallel"),
                why="the engine refuses it while it loads",
                fix=f"{near} (one of 1, 2, 4, 8)",
            )
