"""Rules over TensorRT-LLM targets; nearly all that its engine would refuse after minutes of imports."""

from __future__ import annotations

from launcher.checks.base import Check
from launcher.checks.target.trtllm import handover, keys, limits, variables

CHECKS: tuple[Check, ...] = (
    Check(keys.unknown, ("trt-key",)),
    Check(keys.values, ("trt-value",)),
    Check(keys.twice, ("trt-twice",)),
    Check(keys.graphs, ("trt-graphs",)),
    Check(keys.no_effect, ("trt-no-effect",)),
    Check(limits.parallel, ("trt-parallel", "trt-experts")),
    Check(limits.sequence, ("trt-seq-len",)),
    Check(limits.tokens, ("trt-num-tokens",)),
    Check(limits.slots, ("trt-slots",)),
    Check(limits.workload_gpus, ("workload-gpus",)),
    Check(handover.backend, ("trt-transceiver",)),
    Check(handover.buffer, ("trt-buffer",)),
    Check(handover.same_layout, ("trt-kv-layout",)),
    Check(handover.routing, ("trt-kv-routing",)),
    Check(handover.attention, ("trt-attention",)),
    Check(handover.limits, ("trt-prompt-gap",)),
    Check(variables.quantization, ("trt-quant-value", "trt-quant-model")),
    Check(variables.quantization_hardware, ("trt-quant-gpu",)),
    Check(variables.transport, ("trt-transport", "trt-ucx-tls")),
    Check(variables.switches, ("trt-switch",)),
    Check(variables.known_crash, ("trt-gb200-crash",)),
)
