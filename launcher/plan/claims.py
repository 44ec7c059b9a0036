"""What a deployment claims about itself, from its target."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.engines import vllm
from launcher.plan.kv_size import floor_tokens
from launcher.plan.model import WORKER_ROLES, Claims, Process, Role
from launcher.target.schema import Target


def claims(target: Target, processes: Sequence[Process], *, disaggregated: bool) -> Claims:
    """The claims of a target that became these processes."""
    proofs, speaks = target.proofs, speaks_harmony(target)
    floors = {role.value: floor_tokens(target, role, workers) for role, workers in target.workers.items()}
    return Claims(
        policy={
            "tool call": proofs.tool_call or ("require" if speaks else "skip"),
            "KV routing": proofs.kv_routing,
            "KV transfer": proofs.transfer,
            "fast lane": proofs.fast_lane,
        },
        harmony=speaks,
        disaggregated=disaggregated,
        block_size=target.kv.block_size,
        longest=_longest(target),
        kv_events=vllm.publishes(target, Role.PREFILL if disaggregated else Role.AGGREGATED),
        publishers=tuple(
            process.name
            for process in processes
            if process.role in WORKER_ROLES and vllm.publishes(target, process.role)
        ),
        transfer=target.kv.transfer.connector if target.kv.transfer is not None else "",
        kv_floor={role: floor for role, floor in floors.items() if floor is not None},
    )


def speaks_harmony(target: Target) -> bool:
    """Whether answers can prove the parsers: not the mocker's random text, nor what random weights say."""
    if target.engine.kind == "echo":
        return True
    if target.engine.kind == "mocker" or None in (target.parsers.reasoning, target.parsers.tool_call):
        return False
    return target.engine.args.get("load-format") != "dummy"


def _longest(target: Target) -> int:
    """Tokens of prompt and answer together that every worker takes."""
    found = [target.model.max_context]
    for _, workers in target.workers.items():  # noqa: PERF102 - it is no dict
        args = {**target.engine.args, **workers.args}
        config = {**target.engine.config, **workers.config}
        values = (args.get("max-model-len"), args.get("max-seq-len"), config.get("max_seq_len"))
        found += [value for value in values if isinstance(value, int)]
    return min(found)
