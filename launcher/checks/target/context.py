"""Context lengths, batch budgets and slots of vLLM workers, across roles and against the workload."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import arg_origin, env_of, is_gpt_oss, number, role_args
from launcher.findings import Finding, Severity
from launcher.plan.model import Role
from launcher.target.resolve import Resolved
from launcher.target.schema import Workers

LEN, BUDGET, SEQS = "max-model-len", "max-num-batched-tokens", "max-num-seqs"
TEMPLATE = 128
"""Tokens that harmony's system message and role headers add to a prompt: some 70 without tools, rounded up."""


def _length(resolved: Resolved, workers: Workers) -> int:
    """The longest sequence that a worker of the role takes, in tokens."""
    return number(role_args(resolved.target, workers).get(LEN)) or resolved.target.model.max_context


def model_limit(resolved: Resolved) -> Iterator[Finding]:
    """No worker can serve a longer context than the model was built for (131,072 tokens for gpt-oss)."""
    target = resolved.target
    if target.engine.kind != "vllm":
        return
    for role, workers in target.workers.items():
        length = _length(resolved, workers)
        if env_of(target, workers).get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").lower() in ("1", "true"):
            continue
        if length > target.model.max_context:
            yield Finding(
                code="context-model",
                what=f"{LEN} of {role} workers is {length}, the model has {target.model.max_context}",
                where=arg_origin(resolved, role, LEN),
                why="vLLM refuses it at start",
                fix=f"--set engine.args.{LEN}={target.model.max_context}",
            )
            return


def roles_agree(resolved: Resolved) -> Iterator[Finding]:
    """A request that one role takes and the other refuses fails halfway, after its prompt was computed."""
    target = resolved.target
    given = dict(target.workers.items())
    if target.engine.kind != "vllm" or not {Role.PREFILL, Role.DECODE} <= set(given):
        return
    prefill, decode = (_length(resolved, given[role]) for role in (Role.PREFILL, Role.DECODE))
    if prefill != decode:
        low = min(prefill, decode)
        yield Finding(
            code="context-roles",
            what=f"{LEN} is {prefill} on prefill and {decode} on decode",
            where=arg_origin(resolved, Role.PREFILL if prefill < decode else Role.DECODE, LEN),
            why=f"requests of more than {low} tokens pass the one and fail at the other",
            fix=f"one value for both: --set engine.args.{LEN}={max(prefill, decode)}, and none under workers",
        )


def workload_fits(resolved: Resolved) -> Iterator[Finding]:
    """Prompt, answer and chat template of the target's own traffic must fit into the context."""
    target, load = resolved.target, resolved.target.workload
    if target.engine.kind != "vllm" or load is None:
        return
    wanted = load.isl + load.osl + TEMPLATE
    for role, workers in target.workers.items():
        length = _length(resolved, workers)
        if wanted > length:
            yield Finding(
                code="context-workload",
                what=f"the workload's requests take some {wanted} tokens ({load.isl} + {load.osl} + template), "
                f"{role} workers hold {length}",
                severity=Severity.WARNING,
                where=arg_origin(resolved, role, LEN),
                why="requests of the mean size would be refused",
                fix=f"--set engine.args.{LEN}={min(wanted, target.model.max_context)}, or shorter workload.isl",
            )
            return


def prefill_budget(resolved: Resolved) -> Iterator[Finding]:
    """Without chunked prefill a whole prompt must fit into one step's token budget."""
    target = resolved.target
    if target.engine.kind != "vllm":
        return
    for role, workers in target.workers.items():
        args = role_args(target, workers)
        budget, length = number(args.get(BUDGET)), _length(resolved, workers)
        if args.get("enable-chunked-prefill") is False and budget is not None and budget < length:
            yield Finding(
                code="prefill-budget",
                what=f"{BUDGET} of {role} workers is {budget}, {LEN} {length}, and chunked prefill is off",
                where=arg_origin(resolved, role, BUDGET),
                why="vLLM refuses it: a long prompt could never be scheduled",
                fix=f"engine.args.enable-chunked-prefill: true, or {BUDGET} of at least {length}",
            )
            return


def slots(resolved: Resolved) -> Iterator[Finding]:
    """More requests at once than there are slots (`max-num-seqs` per worker) wait in a queue: TTFT is then queueing."""
    target, load = resolved.target, resolved.target.workload
    if target.engine.kind != "vllm" or load is None:
        return
    for role, workers in target.workers.items():
        if role is Role.PREFILL:
            continue
        each = number(role_args(target, workers).get(SEQS))
        if each is not None and load.concurrency > each * workers.count:
            least = -(-load.concurrency // workers.count)
            yield Finding(
                code="slots-few",
                what=f"workload.concurrency is {load.concurrency}, {workers.count} {role} workers hold "
                f"{each} each = {each * workers.count}",
                severity=Severity.WARNING,
                where=arg_origin(resolved, role, SEQS),
                why="the rest waits in the queue, and the time to first token is mostly waiting",
                fix=f"--set engine.args.{SEQS}={least}, or workload.concurrency of {each * workers.count}",
            )


def quantization(resolved: Resolved) -> Iterator[Finding]:
    """gpt-oss checkpoints are MXFP4; another `--quantization` does not match their config, and vLLM exits."""
    target = resolved.target
    if target.engine.kind != "vllm" or not is_gpt_oss(target):
        return
    for role, workers in target.workers.items():
        value = role_args(target, workers).get("quantization")
        if value is not None and value not in ("mxfp4", "gpt_oss_mxfp4"):
            yield Finding(
                code="quantization",
                what=f"quantization of {role} workers is {value}, the checkpoint of {target.model.id} is mxfp4",
                where=arg_origin(resolved, role, "quantization"),
                why="vLLM refuses a method that is not the checkpoint's",
                fix="engine.args.quantization: mxfp4",
            )
            return
