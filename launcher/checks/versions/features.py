"""What is known to be wrong in certain releases: versions x model x features, each with its evidence."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.versions import releases
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan, Role
from launcher.target.resolve import Resolved


def eagle3_disaggregated(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Dynamo 1.3.x lists EAGLE3 together with disaggregated serving among its known issues.

    The public recipes for h200-disagg and b200-disagg are this combination, on 1.3.1. The speculative config must at
    least be the same on prefill and decode, so that the draft layers' KV has one layout; the launcher sees to that.
    """
    target = resolved.target
    found = releases.of(target, machine.packages)
    split = any(process.role in (Role.PREFILL, Role.DECODE) for process in plan.workers)
    eagle = target.speculative is not None and target.speculative.method.startswith("eagle")
    if target.engine.kind == "vllm" and split and eagle and releases.series(found.dynamo) == "1.3":
        yield Finding(
            code="eagle3-disagg",
            what=f"EAGLE3 with disaggregated serving on Dynamo {found.dynamo}",
            severity=Severity.WARNING,
            where=resolved.origin("speculative", "method"),
            why="the 1.3 series lists the combination among its known issues",
            fix="compare answers with --set speculative=null, or run Dynamo 1.4 or later",
            link="https://github.com/ai-dynamo/dynamo/releases/tag/v1.3.0",
        )


def postprocess_workers(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Dynamo 1.6 strips `num_postprocess_workers` from the engine's YAML, with a warning in each worker's log."""
    target = resolved.target
    found = releases.of(target, machine.packages)
    if target.engine.kind == "trtllm" and releases.numbers(found.dynamo) >= (1, 5):
        for place in (
            ("engine", "config"),
            *(("workers", role.value, "config") for role, _ in target.workers.items()),
        ):
            where = resolved.origin(*place, "num_postprocess_workers")
            if where != "default":
                yield Finding(
                    code="trt-postprocess",
                    what=f"num_postprocess_workers is dropped by Dynamo {found.dynamo}",
                    severity=Severity.INFO,
                    where=where,
                    why="it has no effect there",
                    fix="remove it",
                )
                return
