"""vLLM workers through dynamo.vllm."""

from __future__ import annotations

from typing import Any

from launcher.engines import environment, flags, model
from launcher.engines.base import STOP_STAGE, Context, PortNeed, Slot
from launcher.plan.model import Http, Phase, Process, Ranks, Role, Stop
from launcher.target.schema import Target, Workers

PHASES = (
    Phase("engine", r"Initializing a V1 LLM engine"),
    Phase("weights", r"Starting to load model|Loading safetensors|Loading model from scratch"),
    Phase("loaded", r"Model loading took|Loading weights took"),
    Phase(
        "compile",
        r"torch\.compile takes|Using cache directory: .*torch_compile_cache|Dynamo bytecode transform",
    ),
    Phase("kv-cache", r"GPU KV cache size"),
    Phase("graphs", r"Capturing CUDA graphs|Graph capturing"),
    Phase("register", r"Registered endpoint|Registering model|init engine .* took"),
)
# The engine core may die while its parent lives on and looks healthy.
FATAL = (r"EngineDeadError", r"EngineCore (?:died|failed|encountered a fatal error)")
CORE = Ranks(r"^VLLM::EngineCore", 1)
"""The title of the engine process below each worker (0.23.0, seen on an H200)."""
OWNED = {
    "model": "model.id",
    "served-model-name": "model.served_name",
    "revision": "model.revision",
    "block-size": "kv.block_size",
    "kv-cache-dtype": "kv.dtype",
    "kv-events-config": "kv.events",
    "kv-transfer-config": "kv.transfer or kv.offload",
    "speculative-config": "speculative",
    "tensor-parallel-size": "workers.ROLE.tensor_parallel",
    "disaggregation-mode": "workers",
    "dyn-reasoning-parser": "parsers.reasoning",
    "dyn-tool-call-parser": "parsers.tool_call",
}
"""Flags that are made from a typed field, and the field: stated once, they cannot disagree."""


def events_socket(run_dir: str, name: str) -> str:
    """The unix socket on which a worker publishes its KV events; a restarted worker binds it anew."""
    return f"{run_dir}/kv.{name}"


def publishes(target: Target, role: Role) -> bool:
    """Whether a worker of the role publishes KV events: decode workers reuse no prefix, so they do not."""
    return (
        target.kv.events
        and target.router.mode == "kv"
        and not target.router.approximate
        and role is not Role.DECODE
    )


def transfer_config(target: Target, role: Role) -> dict[str, Any] | None:
    """The value of `--kv-transfer-config`, or None."""
    transfer, offload = target.kv.transfer, target.kv.offload
    if transfer is not None and role is not Role.AGGREGATED:
        kv_role = transfer.role
        if kv_role == "by-role":
            kv_role = "kv_producer" if role is Role.PREFILL else "kv_consumer"
        config: dict[str, Any] = {"kv_connector": "NixlConnector", "kv_role": kv_role}
        if transfer.buffer_device is not None:
            config["kv_buffer_device"] = transfer.buffer_device
        return config
    if offload is not None:
        return {
            "kv_connector": offload.connector,
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": offload.bytes_per_rank},
        }
    return None


class Vllm:
    """Aggregated workers, or prefill and decode workers joined by NIXL."""

    kind = "vllm"
    simulated = False

    def port_needs(self, target: Target, role: Role, workers: Workers) -> tuple[PortNeed, ...]:
        needs = [PortNeed("system"), PortNeed("rpc")]
        if target.kv.transfer is not None and role is not Role.AGGREGATED:
            # vLLM adds the rank to the port that it is given.
            needs.append(PortNeed("nixl", max(2, workers.tensor_parallel)))
        return tuple(needs)

    def stop(self, target: Target, role: Role) -> Stop:
        # The leader unregisters, waits its grace of 5 s and then joins an engine process that nobody told to stop:
        # the group must be told too (measured on an H200; 7 s from there).
        return Stop(leader_s=9.0, group=True, group_s=11.0)

    def build(self, context: Context, slot: Slot) -> Process:
        target, workers = context.target, slot.workers
        assert workers is not None
        args: dict[str, Any] = {
            "model": target.model.path or target.model.id,
            "served-model-name": target.model.name,
        }
        if target.model.path is None and target.model.revision != "main":
            args["revision"] = target.model.revision
        if slot.role is not Role.AGGREGATED:
            args["disaggregation-mode"] = slot.role.value
        args["block-size"] = target.kv.block_size
        if target.kv.dtype is not None:
            args["kv-cache-dtype"] = target.kv.dtype
        args["tensor-parallel-size"] = workers.tensor_parallel
        args |= target.engine.args
        args |= workers.args
        if target.speculative is not None:
            config: dict[str, Any] = {"method": target.speculative.method}
            if target.model.draft is not None:
                config["model"] = target.model.draft.id
            config["num_speculative_tokens"] = target.speculative.num_tokens
            args["speculative-config"] = config | target.speculative.extra
        transfer = transfer_config(target, slot.role)
        if transfer is not None:
            args["kv-transfer-config"] = transfer
        if publishes(target, slot.role):
            args["kv-events-config"] = {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "topic": "kv-events",
                # vLLM binds where the address has a `*` (which means all interfaces) or is a unix socket, and connects
                # anywhere else: tcp://127.0.0.1:PORT publishes into nothing, in silence (0.23.0, seen on an H200).
                # Dynamo's side, in the same process, connects to what stands here.
                "endpoint": f"ipc://{events_socket(context.run_dir, slot.name)}",
            }
        if target.parsers.reasoning is not None:
            args["dyn-reasoning-parser"] = target.parsers.reasoning
        if target.parsers.tool_call is not None:
            args["dyn-tool-call-parser"] = target.parsers.tool_call
        return Process(
            name=slot.name,
            role=slot.role,
            argv=(context.python, "-m", "dynamo.vllm", *flags.to_argv(args)),
            env=self._env(context, slot, workers),
            gpus=slot.gpus,
            ports=slot.ports,
            health=Http(context.join.host, slot.ports["system"], "/health"),
            stop=self.stop(target, slot.role),
            stop_stage=STOP_STAGE[slot.role],
            fatal=FATAL,
            phases=PHASES,
            ranks=CORE,
            warm_key=f"vllm/{slot.role.value}/{context.cache_key}",
            incarnation=slot.incarnation,
        )

    def _env(self, context: Context, slot: Slot, workers: Workers) -> dict[str, str]:
        env = environment.shared(context, slot)
        env["DYN_COMPONENT"] = "prefill" if slot.role is Role.PREFILL else "backend"
        if slot.visible:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(slot.visible)
        env |= {
            "VLLM_HOST_IP": context.join.host,
            "GLOO_SOCKET_IFNAME": context.join.interface,
            "NCCL_SOCKET_IFNAME": context.join.interface,
        }
        if "nixl" in slot.ports:
            env |= {
                "VLLM_NIXL_SIDE_CHANNEL_HOST": context.join.host,
                "VLLM_NIXL_SIDE_CHANNEL_PORT": str(slot.ports["nixl"]),
                # vLLM sets it only if NIXL is not imported yet, and Dynamo imports NIXL first.
                "UCX_RCACHE_MAX_UNRELEASED": "1024",
                # UCX writes into the log by which lane it moves KV: the transfer proof reads it there.
                "UCX_PROTO_INFO": "y",
            }
            if context.join.alone:
                # UCX would listen on every interface's address. Past one node it may need the RDMA devices, too.
                env["UCX_NET_DEVICES"] = context.join.interface
        env |= model.cache_env(context)
        env |= model.model_env(context) | model.served_by_worker(context)
        env |= flags.to_env(context.target.engine.env)
        env |= flags.to_env(workers.env)
        return env
