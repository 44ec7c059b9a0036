"""Parallel sizes, sequence lengths, token budgets and slots of TensorRT-LLM workers."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.context import TEMPLATE
from launcher.checks.target.places import round_up
from launcher.checks.target.trtllm.view import View, shown, views
from launcher.findings import Finding, Severity
from launcher.plan.model import Role
from launcher.target.resolve import Resolved


def parallel(resolved: Resolved) -> Iterator[Finding]:
    """Tensor, pipeline and expert parallel sizes must multiply to the GPUs that the worker is given.

    TP x PP ranks are started, one on each GPU. Within TP the experts are split by expert parallel x MoE tensor
    parallel, whose product is TP.
    """
    for view in views(resolved):
        given = view.workers.tensor_parallel
        tp, pp = view.count("tensor_parallel_size") or 1, view.count("pipeline_parallel_size") or 1
        if tp * pp != given:
            yield Finding(
                code="trt-parallel",
                what=f"{view.role} workers run {tp} x {pp} = {tp * pp} ranks (TP x PP) on {given} GPU",
                where=view.origin("tensor_parallel_size")
                if tp != 1
                else view.origin("pipeline_parallel_size"),
                why="each rank needs a GPU of its own, and GPUs without a rank are idle",
                fix=f"workers.{view.role}.tensor_parallel: {tp * pp}, or tensor_parallel_size {max(1, given // pp)}",
            )
        yield from _experts(view, tp)


def _experts(view: View, tp: int) -> Iterator[Finding]:
    ep, moe_tp = view.count("moe_expert_parallel_size"), view.count("moe_tensor_parallel_size")
    cluster = view.count("moe_cluster_parallel_size") or 1
    if ep is None and moe_tp is None:
        return
    product = (ep or 1) * (moe_tp or 1) * cluster
    right = product == tp if ep is not None and moe_tp is not None else tp % product == 0
    if not right:
        name = "moe_expert_parallel_size" if ep is not None else "moe_tensor_parallel_size"
        other = moe_tp or 1 if ep is not None else 1
        # The largest divisor of what is left that is not above what was asked for.
        room = max(1, tp // (other * cluster))
        near = max(
            size for size in range(1, room + 1) if room % size == 0 and size <= max(ep or moe_tp or 1, 1)
        )
        yield Finding(
            code="trt-experts",
            what=f"{view.role} workers: expert parallel {ep or 'auto'} x MoE tensor parallel {moe_tp or 'auto'} "
            f"for tensor parallel size {tp}",
            where=view.origin(name),
            why="their product must be the tensor parallel size; the engine refuses anything else",
            fix=f"--set {shown(view.role, name)}={near}",
        )


def sequence(resolved: Resolved) -> Iterator[Finding]:
    """`max_seq_len` must hold what the workload sends: prompt and one token on prefill, prompt and answer on decode.

    Where it is not given the engine takes the model's own limit.
    """
    load = resolved.target.workload
    if load is None:
        return
    for view in views(resolved):
        limit = view.count("max_seq_len")
        wanted = load.isl + 1 if view.role is Role.PREFILL else load.isl + load.osl + TEMPLATE
        if limit is not None and limit < wanted:
            yield Finding(
                code="trt-seq-len",
                what=f"max_seq_len of {view.role} workers is {limit}, the workload needs {wanted} "
                + (
                    f"({load.isl} + 1)"
                    if view.role is Role.PREFILL
                    else f"({load.isl} + {load.osl} + template)"
                ),
                where=view.origin("max_seq_len"),
                why="requests of the target's own workload would be refused",
                fix=f"--set {shown(view.role, 'max_seq_len')}={round_up(wanted, 8)}",
            )


def tokens(resolved: Resolved) -> Iterator[Finding]:
    """Without chunked prefill a prompt must fit into one iteration: `max_num_tokens`, 8192 unless given."""
    load = resolved.target.workload
    if load is None:
        return
    for view in views(resolved):
        budget = view.count("max_num_tokens")
        if view.role is Role.DECODE or view.value("enable_chunked_prefill") or budget is None:
            continue
        if budget < load.isl:
            yield Finding(
                code="trt-num-tokens",
                what=f"max_num_tokens of {view.role} workers is {budget}, prompts have {load.isl} tokens, "
                "and chunked prefill is off",
                where=view.origin("max_num_tokens"),
                why="such a prompt can never be scheduled",
                fix=f"--set engine.config.max_num_tokens={round_up(load.isl + TEMPLATE, 1024)}, "
                "or engine.config.enable_chunked_prefill=true",
            )


def slots(resolved: Resolved) -> Iterator[Finding]:
    """Requests at once against the slots that generate: `max_batch_size` per worker, per rank under attention DP."""
    load = resolved.target.workload
    if load is None:
        return
    for view in views(resolved):
        batch = view.count("max_batch_size")
        if view.role is Role.PREFILL or not batch:
            continue
        ranks = (view.count("tensor_parallel_size") or 1) if view.value("enable_attention_dp") else 1
        total = batch * ranks * view.workers.count
        if load.concurrency > total:
            times = f" x {ranks} ranks" if ranks > 1 else ""
            yield Finding(
                code="trt-slots",
                what=f"workload.concurrency is {load.concurrency}, the {view.role} slots are "
                f"{view.workers.count} x {batch}{times} = {total}",
                severity=Severity.WARNING,
                where=resolved.origin("workload", "concurrency"),
                why="the rest waits in the queue, and the time to first token is mostly waiting",
                fix=f"--set workload.concurrency={total}",
            )


def workload_gpus(resolved: Resolved) -> Iterator[Finding]:
    """A concurrency per GPU times the GPUs: the recipe's benchmark counts another number than the target uses."""
    from launcher.plan import gpus

    target, load = resolved.target, resolved.target.workload
    if load is None or load.concurrency_gpus is None or target.engine.kind not in ("vllm", "trtllm"):
        return
    used = gpus.needed(target)
    if load.concurrency_gpus != used:
        each = load.concurrency // load.concurrency_gpus
        yield Finding(
            code="workload-gpus",
            what=f"workload.concurrency {load.concurrency} counts {load.concurrency_gpus} GPUs, {used} are used",
            severity=Severity.INFO,
            where=resolved.origin("workload", "concurrency_gpus"),
            why="a result per GPU would be divided by the wrong number",
            fix=f"{each} x {used} = {each * used} for the GPUs that are used",
        )
