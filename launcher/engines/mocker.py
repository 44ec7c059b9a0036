"""Dynamo's simulator in place of any engine: same processes, roles and ports, no model and no GPU."""

from __future__ import annotations

from typing import Any

from launcher.engines import model
from launcher.engines.base import Context, Slot
from launcher.engines.simulated import Simulated, component


class Mocker(Simulated):
    """Simulated workers behind the real frontend and router."""

    kind = "mocker"
    module = "dynamo.mocker"
    derived = {
        "max-num-seqs": "max-num-seqs",
        "max-batch-size": "max-num-seqs",
        "max-num-batched-tokens": "max-num-batched-tokens",
    }

    def args(self, context: Context, slot: Slot, args: dict[str, Any]) -> dict[str, Any]:
        target, workers = context.target, slot.workers
        assert workers is not None
        args["endpoint"] = f"dyn://{context.join.namespace}.{component(slot.role)}.generate"
        args["engine-type"] = simulated_type(context)
        if target.engine.config.get("enable_attention_dp"):
            args["data-parallel-size"] = workers.tensor_parallel
        return args | target.simulation.args

    def env(self, context: Context) -> dict[str, str]:
        return model.served_by_worker(context)


def simulated_type(context: Context) -> str:
    """The simulator's engine type.

    trtllm serves aggregated only: disaggregated it registers, looks ready and answers every request with 500
    ("mocker handoff does not support TRT-LLM", Dynamo 1.3.1 to 1.6.1), so vLLM's timing stands in there.
    """
    return "trtllm" if context.native == "trtllm" and not context.disaggregated else "vllm"
