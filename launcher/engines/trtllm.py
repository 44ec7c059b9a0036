"""TensorRT-LLM workers through dynamo.trtllm: a short command line and one complete engine YAML per role.

Everything nested goes into the YAML: the command line's `--override-engine-args` replaces whole groups.
"""

from __future__ import annotations

import copy
from typing import Any

import yaml

from launcher.engines import environment, flags, model
from launcher.engines.base import STOP_STAGE, Context, PortNeed, Slot
from launcher.plan.model import Http, Phase, Process, Ranks, Role, Stop
from launcher.target.schema import Target, Workers

PHASES = (
    Phase("ranks", r"Starting MPI|MPI_Comm_spawn|Start MpiSession|rank \d+ using MpiPoolSession"),
    Phase("weights", r"Loading (?:safetensors|weights)|Prefetching .* checkpoint"),
    Phase("kv-cache", r"Allocated .* for max tokens in paged KV cache|Estimated max memory in KV cache"),
    Phase("autotune", r"\[Autotuner\]"),
    Phase("graphs", r"Run generation only CUDA graph warmup|CUDA graph"),
    Phase("register", r"Registered|Serving endpoint"),
)
FATAL = (r"MPI_ABORT was invoked", r"Executor worker died", r"RequestError: .*executor.*shut ?down")


def engine_config(target: Target, role: Role, workers: Workers) -> dict[str, Any]:
    """The complete engine YAML of a role: common keys, then the typed fields, then the role's own."""
    config = copy.deepcopy(target.engine.config)
    if role is not Role.AGGREGATED:
        config["tensor_parallel_size"] = workers.tensor_parallel
    if target.kv.dtype is not None:
        group = config.setdefault("kv_cache_config", {})
        if isinstance(group, dict):  # anything else is a finding (trt-value)
            group["dtype"] = target.kv.dtype
    if target.kv.transfer is not None and role is not Role.AGGREGATED:
        transceiver: dict[str, Any] = {"backend": target.kv.transfer.connector.upper()}
        if target.kv.transfer.max_tokens_in_buffer is not None:
            transceiver["max_tokens_in_buffer"] = target.kv.transfer.max_tokens_in_buffer
        config["cache_transceiver_config"] = transceiver
    return _merged(config, workers.config)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


class Trtllm:
    """One worker of TP ranks, aggregated, or prefill and decode over the UCX cache transceiver."""

    kind = "trtllm"
    simulated = False

    def port_needs(self, target: Target, role: Role, workers: Workers) -> tuple[PortNeed, ...]:
        return (PortNeed("system"), PortNeed("rpc"))

    def stop(self, target: Target, role: Role) -> Stop:
        # 5 s grace, 30 s drain, then the engine's own stop; ranks end with their leader, and a signal to the group
        # would orphan them under Open MPI 5.
        return Stop(leader_s=95.0 if role is Role.PREFILL else 60.0)

    def build(self, context: Context, slot: Slot) -> Process:
        target, workers = context.target, slot.workers
        assert workers is not None
        engine_file = f"{context.run_dir}/engine/{slot.role.value}.yaml"
        args: dict[str, Any] = {
            "model-path": target.model.path or target.model.id,
            "served-model-name": target.model.name,
            "extra-engine-args": engine_file,
        }
        if slot.role is not Role.AGGREGATED:
            args["disaggregation-mode"] = slot.role.value
        if target.router.mode == "kv":
            args["kv-block-size"] = target.kv.block_size
            if target.kv.events and slot.role is not Role.DECODE:
                args["publish-kv-events"] = True
        args |= target.engine.args
        args |= workers.args
        if target.parsers.reasoning is not None:
            args["dyn-reasoning-parser"] = target.parsers.reasoning
        if target.parsers.tool_call is not None:
            args["dyn-tool-call-parser"] = target.parsers.tool_call
        env = environment.shared(context, slot) | environment.endpoint_health()
        if slot.visible:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(slot.visible)
        env["NCCL_SOCKET_IFNAME"] = context.join.interface
        env |= model.cache_env(context)
        env |= model.model_env(context) | model.served_by_worker(context)
        env |= flags.to_env(target.engine.env)
        env |= flags.to_env(workers.env)
        config = engine_config(target, slot.role, workers)
        return Process(
            name=slot.name,
            role=slot.role,
            argv=(context.python, "-m", "dynamo.trtllm", *flags.to_argv(args)),
            env=env,
            gpus=slot.gpus,
            ports=slot.ports,
            files={engine_file: yaml.safe_dump(config, sort_keys=True)},
            health=Http(context.join.host, slot.ports["system"], "/health"),
            stop=self.stop(target, slot.role),
            stop_stage=STOP_STAGE[slot.role],
            fatal=FATAL,
            phases=PHASES,
            ranks=Ranks(r"mpi4py\.futures\.server", workers.tensor_parallel),
            warm_key=f"trtllm/{slot.role.value}/{context.cache_key}",
            incarnation=slot.incarnation,
        )
