"""Whether weights and shares can fit on the GPUs that the target counts on."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import arg_origin, role_args, share
from launcher.findings import Finding
from launcher.plan.kv_size import WEIGHTS_GIB
from launcher.target.resolve import Resolved

UTILIZATION = "gpu-memory-utilization"


def shares(resolved: Resolved) -> Iterator[Finding]:
    """Workers that share one GPU (`hardware.shared_gpu`) split its memory; together they cannot take more than it has.

    vLLM checks at start that its own share is free. Which of two workers fails depends on which was slower.
    """
    target = resolved.target
    if target.engine.kind != "vllm":
        return
    total = 0.0
    for role, workers in target.workers.items():
        value = role_args(target, workers).get(UTILIZATION)
        each = 0.9 if value is None else share(value)
        if each is None or not 0 < each <= 1:
            yield Finding(
                code="gpu-share",
                what=f"{UTILIZATION} of {role} workers is {value!r}",
                where=arg_origin(resolved, role, UTILIZATION),
                why="it is the part of the GPU's memory that a worker takes",
                fix="a number above 0, at most 1, such as 0.9",
            )
            return
        total += each * workers.count
    if target.hardware.shared_gpu and total > 1:
        count = sum(workers.count for _, workers in target.workers.items())
        yield Finding(
            code="gpu-share",
            what=f"{count} workers on one GPU ask for {total:.2f} of its memory",
            where=resolved.origin("engine", "args", UTILIZATION),
            why="the one that starts last finds too little free and exits",
            fix=f"{UTILIZATION} of at most {int(95 / count) / 100:g} each",
        )


def weights(resolved: Resolved) -> Iterator[Finding]:
    """The weights of the model must fit on the worker's GPUs, with room for KV."""
    target, gpu = resolved.target, resolved.target.hardware.gpu_memory_gib
    size = next((size for name, size in WEIGHTS_GIB.items() if name in target.model.id.lower()), None)
    if target.engine.kind not in ("vllm", "trtllm") or gpu is None or size is None:
        return
    shared = target.hardware.shared_gpu
    count = sum(workers.count for _, workers in target.workers.items()) if shared else 1
    for role, workers in target.workers.items():
        each = size / workers.tensor_parallel
        if each * count > gpu * 0.92:
            yield Finding(
                code="gpu-weights",
                what=f"{target.model.id} has {size:g} GiB of weights"
                + (f", {count} workers share one GPU" if shared else f" on {workers.tensor_parallel} GPU")
                + f" of {gpu:g} GiB",
                where=resolved.origin("hardware", "gpu_memory_gib"),
                why=f"nothing would be left for the KV cache of {role} workers",
                fix="a smaller model (openai/gpt-oss-20b), more GPUs (hardware.shared_gpu: false), "
                "or a larger workers.*.tensor_parallel",
            )
            return
