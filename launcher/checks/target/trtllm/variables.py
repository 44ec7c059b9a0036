"""Environment variables that TensorRT-LLM and its transports read."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import is_gpt_oss
from launcher.checks.target.trtllm.view import View, views
from launcher.findings import Finding, Severity, nearest
from launcher.machine.products import PRODUCTS, product_name
from launcher.target.resolve import Resolved

QUANT = "OVERRIDE_QUANT_ALGO"
ALGORITHMS = ("W4A16_MXFP4", "W4A8_MXFP4_MXFP8", "W4A8_MXFP4_FP8")
BLACKWELL = (10, 0)
_KVCACHE = {f"TRTLLM_USE_{kind}_KVCACHE": kind for kind in ("NIXL", "UCX", "MOONCAKE", "MPI")}


def _origin(view: View, name: str) -> str:
    for place in (("workers", view.role.value, "env"), ("engine", "env")):
        where = view.resolved.origin(*place, name)
        if where != "default":
            return where
    return "default"


def quantization(resolved: Resolved) -> Iterator[Finding]:
    """`OVERRIDE_QUANT_ALGO` takes three exact values, on MXFP4 checkpoints.

    The engine only logs a value that it does not know and goes on without: a benchmark then measures another number
    format than its label says. So the launcher refuses it.
    """
    for view in views(resolved):
        value = view.env.get(QUANT)
        if value is None:
            continue
        if value.upper() not in ALGORITHMS:
            close = nearest(value.upper(), ALGORITHMS)
            yield Finding(
                code="trt-quant-value",
                what=f"{QUANT} is {value!r}",
                where=_origin(view, QUANT),
                why="the engine logs it and goes on with the checkpoint's own format",
                fix=f"did you mean {close!r}?" if close else "one of: " + ", ".join(ALGORITHMS),
            )
        elif not is_gpt_oss(resolved.target):
            yield Finding(
                code="trt-quant-model",
                what=f"{QUANT}={value} with {resolved.target.model.id}",
                where=_origin(view, QUANT),
                why="it only changes how MXFP4 checkpoints are computed",
                fix=f"remove {QUANT}",
            )
        else:
            continue
        return


def quantization_hardware(resolved: Resolved) -> Iterator[Finding]:
    """8-bit activations on MXFP4 weights (W4A8) are instructions of Blackwell's tensor cores (B200, GB200).

    On Hopper the checkpoint's own W4A16 is what runs. Which GPUs a target is for stands in `hardware.gpu`; the machine
    that is there is looked at by `gpu-format`.
    """
    target = resolved.target
    old = [
        name
        for name in target.hardware.gpu
        if (known := PRODUCTS.get(product_name(name).upper())) is not None
        and known.compute_capability < BLACKWELL
    ]
    for view in views(resolved):
        value = view.env.get(QUANT, "").upper()
        if old and value in ALGORITHMS and value != "W4A16_MXFP4":
            yield Finding(
                code="trt-quant-gpu",
                what=f"{QUANT}={value} in a target for {' or '.join(old)}",
                where=_origin(view, QUANT),
                why="it needs compute capability 10.0 (Blackwell: B200, GB200)",
                fix=f"{QUANT}=W4A16_MXFP4 (the checkpoint's own), or remove it",
                link="TRT-LLM#12558",
            )
            return


def transport(resolved: Resolved) -> Iterator[Finding]:
    """The transceiver's backend chooses what moves KV; variables that seem to choose it count with DEFAULT only."""
    for view in views(resolved):
        backend = view.given("cache_transceiver_config", "backend")
        for name, kind in _KVCACHE.items():
            on = view.env.get(name, "0") not in ("", "0")
            if on and backend not in (None, "DEFAULT") and kind != backend:
                yield Finding(
                    code="trt-transport",
                    what=f"{name} is set, and cache_transceiver_config.backend is {backend}",
                    severity=Severity.WARNING,
                    where=_origin(view, name),
                    why="the variable counts only with backend DEFAULT",
                    fix=f"remove {name}, or kv.transfer.connector: {kind.lower()}",
                )
        tls = view.env.get("UCX_TLS")
        if tls and backend in ("UCX", "DEFAULT", "NIXL") and not _moves_gpu_memory(tls):
            yield Finding(
                code="trt-ucx-tls",
                what=f"UCX_TLS={tls} has neither cuda_copy nor cuda_ipc",
                where=_origin(view, "UCX_TLS"),
                why="UCX cannot touch GPU memory without one of them; the first transfer fails",
                fix=f"UCX_TLS={tls},cuda_copy,cuda_ipc, or remove it",
            )


def _moves_gpu_memory(tls: str) -> bool:
    words = {word.strip() for word in tls.split(",")}
    if tls.startswith("^"):
        return not words & {"^cuda", "cuda", "^cuda_copy"}
    return bool(words & {"cuda_copy", "cuda_ipc", "cuda", "all"})


def switches(resolved: Resolved) -> Iterator[Finding]:
    """TRTLLM_ENABLE_PDL is on for exactly "1": `true` or `on` leave it off, and nothing says so."""
    for view in views(resolved):
        value = view.env.get("TRTLLM_ENABLE_PDL")
        if value is not None and value not in ("0", "1"):
            yield Finding(
                code="trt-switch",
                what=f"TRTLLM_ENABLE_PDL is {value!r}",
                severity=Severity.WARNING,
                where=_origin(view, "TRTLLM_ENABLE_PDL"),
                why="only 1 turns it on",
                fix="1 or 0",
            )
            return


def known_crash(resolved: Resolved) -> Iterator[Finding]:
    """Aggregated gpt-oss with attention DP is known to crash on GB200 unless its all-to-all is replaced."""
    if not {product_name(name) for name in resolved.target.hardware.gpu} & {"GB200", "GB300"}:
        return
    for view in views(resolved):
        if view.value("enable_attention_dp") and "TRTLLM_FORCE_COMM_METHOD" not in view.env:
            yield Finding(
                code="trt-gb200-crash",
                what="attention DP on GB200 without TRTLLM_FORCE_COMM_METHOD",
                severity=Severity.WARNING,
                where=view.origin("enable_attention_dp"),
                why="workers of this shape were seen to crash under load",
                fix="--set engine.env.TRTLLM_FORCE_COMM_METHOD=ALLGATHER if it happens",
            )
            return
