"""Dynamo's simulator in place of any engine: same processes, roles and ports, no model and no GPU."""

from __future__ import annotations

from typing import Any

from launcher import simmodel
from launcher.engines import environment, flags, model
from launcher.engines.base import STOP_STAGE, Context, PortNeed, Slot
from launcher.plan.model import Http, Process, Role, Stop
from launcher.target.schema import Target, Workers

DERIVED = {
    "max-num-seqs": "max-num-seqs",
    "max-batch-size": "max-num-seqs",
    "max-num-batched-tokens": "max-num-batched-tokens",
}
"""Engine flags that mean something to the simulator, and its name for them."""


class Mocker:
    """Simulated workers behind the real frontend and router."""

    kind = "mocker"
    simulated = True

    def port_needs(self, target: Target, role: Role, workers: Workers) -> tuple[PortNeed, ...]:
        return (PortNeed("system"), PortNeed("rpc"))

    def stop(self, target: Target, role: Role) -> Stop:
        return Stop(leader_s=6.0)

    def build(self, context: Context, slot: Slot) -> Process:
        target, workers = context.target, slot.workers
        assert workers is not None
        component = "prefill" if slot.role is Role.PREFILL else "backend"
        args: dict[str, Any] = {
            "model-path": str(simmodel.MODEL_PATH),
            "model-name": target.model.name,
            "endpoint": f"dyn://{context.join.namespace}.{component}.generate",
            "engine-type": simulated_type(context),
            "block-size": target.kv.block_size,
        }
        if slot.role is not Role.AGGREGATED:
            args["disaggregation-mode"] = slot.role.value
        for name, value in {**target.engine.args, **workers.args}.items():
            if name in DERIVED:
                args[DERIVED[name]] = value
        if target.engine.config.get("enable_attention_dp"):
            args["data-parallel-size"] = workers.tensor_parallel
        args |= target.simulation.args
        env = environment.shared(context, slot) | environment.endpoint_health()
        env |= model.model_env(context) | model.served_by_worker(context)
        env |= flags.to_env(target.simulation.env)
        return Process(
            name=slot.name,
            role=slot.role,
            argv=(context.python, "-m", "dynamo.mocker", *flags.to_argv(args)),
            env=env,
            gpus=slot.gpus,
            ports=slot.ports,
            health=Http(context.join.host, slot.ports["system"], "/health"),
            stop=self.stop(target, slot.role),
            stop_stage=STOP_STAGE[slot.role],
            incarnation=slot.incarnation,
        )


def simulated_type(context: Context) -> str:
    """The simulator's engine type.

    trtllm serves aggregated only: disaggregated it registers, looks ready and answers every request with 500
    ("mocker handoff does not support TRT-LLM", Dynamo 1.3.1 to 1.6.1), so vLLM's timing stands in there.
    """
    return "trtllm" if context.native == "trtllm" and not context.disaggregated else "vllm"
