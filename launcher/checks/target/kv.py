"""How KV moves from prefill to decode, and where it goes when the GPU is full."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import arg_origin, is_gpt_oss, is_real, role_args
from launcher.findings import Finding, Severity, did_you_mean
from launcher.plan.model import Role
from launcher.target.resolve import Resolved

OFFLOAD = ("SimpleCPUOffloadConnector", "OffloadingConnector")
"""vLLM's connectors that keep KV in host memory (vLLM 0.23.0 to 0.31.0)."""
BROKEN = ("LMCacheConnectorV1", "LMCacheMPConnector", "MultiConnector")
"""Connectors that turn the hybrid KV manager off, or whose engine dies with gpt-oss."""
TRANSFERS = {"vllm": ("nixl",), "trtllm": ("ucx", "nixl")}


def transfer_missing(resolved: Resolved) -> Iterator[Finding]:
    """Prefill and decode workers need a way for the KV that the one computes to reach the other."""
    target = resolved.target
    split = {Role.PREFILL, Role.DECODE} <= {role for role, _ in target.workers.items()}
    if is_real(target) and split and target.kv.transfer is None:
        yield Finding(
            code="kv-transfer-missing",
            what="prefill and decode workers with no kv.transfer",
            where=resolved.origin("kv", "transfer"),
            why="the KV that prefill computes has no way to decode",
            fix="kv.transfer.connector: " + ("nixl" if target.engine.kind == "vllm" else "ucx"),
        )


def transfer_fits(resolved: Resolved) -> Iterator[Finding]:
    """vLLM hands KV over with NIXL, TensorRT-LLM with its cache transceiver over UCX (or NIXL).

    The other engine's keys are read by nobody, and a role that is producer on both sides leaves decode without input.
    """
    target, transfer = resolved.target, resolved.target.kv.transfer
    if not is_real(target) or transfer is None:
        return
    kind = target.engine.kind
    fits = TRANSFERS[kind]
    if transfer.connector not in fits:
        yield Finding(
            code="kv-transfer-engine",
            what=f"kv.transfer.connector is {transfer.connector}, the engine is {kind}",
            where=resolved.origin("kv", "transfer", "connector"),
            why=f"{kind} moves KV with {' or '.join(fits)}",
            fix=f"kv.transfer.connector: {fits[0]}",
        )
    if not {Role.PREFILL, Role.DECODE} & {role for role, _ in target.workers.items()}:
        yield Finding(
            code="kv-transfer-unused",
            what="kv.transfer with aggregated workers",
            severity=Severity.WARNING,
            where=resolved.origin("kv", "transfer"),
            why="an aggregated worker hands nothing over; the setting has no effect",
            fix="remove it: --set kv.transfer=null",
        )
    elif kind == "vllm" and transfer.role in ("kv_producer", "kv_consumer"):
        yield Finding(
            code="kv-transfer-role",
            what=f"kv.transfer.role is {transfer.role} for prefill and decode alike",
            where=resolved.origin("kv", "transfer", "role"),
            why="one side must produce and the other consume, or each do both",
            fix="kv.transfer.role: by-role (prefill produces, decode consumes), or kv_both",
        )
    foreign = {"vllm": ("max_tokens_in_buffer",), "trtllm": ("buffer_device",)}[kind]
    for name in foreign:
        if getattr(transfer, name) is not None:
            yield Finding(
                code="kv-transfer-unused",
                what=f"kv.transfer.{name} means nothing to {kind}",
                severity=Severity.WARNING,
                where=resolved.origin("kv", "transfer", name),
                why="nobody reads it",
                fix=f"remove it: --set kv.transfer.{name}=null",
            )


def offload_with_transfer(resolved: Resolved) -> Iterator[Finding]:
    """An offload connector together with NIXL breaks the handover from prefill to decode.

    vLLM has one `--kv-transfer-config`; only MultiConnector would hold both, and it fails with gpt-oss. The public
    recipes turn offload off in every disaggregated target.
    """
    kv = resolved.target.kv
    if is_real(resolved.target) and kv.offload is not None and kv.transfer is not None:
        yield Finding(
            code="offload-transfer",
            what=f"kv.offload ({kv.offload.connector}) together with kv.transfer ({kv.transfer.connector})",
            where=resolved.origin("kv", "offload"),
            why="offload connectors break the handshake between prefill and decode",
            fix="--set kv.offload=null, or aggregated workers",
        )


def offload_connector(resolved: Resolved) -> Iterator[Finding]:
    """Which connectors can keep gpt-oss's KV in host memory.

    gpt-oss alternates full and sliding-window attention. LMCache asserts one KV layout, and its engine dies while it
    starts; LMCache and MultiConnector also turn vLLM's hybrid KV manager off, which halves the KV cache.
    """
    target, offload = resolved.target, resolved.target.kv.offload
    if offload is None or not is_real(target):
        return
    where = resolved.origin("kv", "offload", "connector")
    if target.engine.kind == "trtllm":
        yield Finding(
            code="offload-engine",
            what=f"kv.offload ({offload.connector}) with TensorRT-LLM",
            where=where,
            why="it is a vLLM connector; TensorRT-LLM would ignore it",
            fix="engine.config.kv_cache_config.host_cache_size: BYTES, and --set kv.offload=null",
        )
    elif offload.connector in BROKEN and is_gpt_oss(target):
        yield Finding(
            code="offload-broken",
            what=f"kv.offload.connector is {offload.connector}, and the model is {target.model.id}",
            where=where,
            why="LMCache's engine dies on gpt-oss's two attention layouts, and the hybrid KV manager is turned off",
            fix="kv.offload.connector: SimpleCPUOffloadConnector",
            link="LMCache#2845, vllm#35758",
        )
    elif offload.connector not in OFFLOAD:
        yield Finding(
            code="offload-unknown",
            what=f"kv.offload.connector is {offload.connector!r}",
            severity=Severity.WARNING if offload.connector.endswith("Connector") else Severity.ERROR,
            where=where,
            why="this launcher passes cpu_bytes_to_use_per_rank, which only vLLM's own offload connectors read",
            fix=did_you_mean(offload.connector, OFFLOAD),
        )


def hybrid_manager(resolved: Resolved) -> Iterator[Finding]:
    """gpt-oss keeps a short window of KV in half of its layers; vLLM's hybrid KV manager stores just that.

    With a KV connector vLLM turns the manager off unless told otherwise, and then every layer stores everything: the
    same memory holds about half the tokens. Nothing fails; throughput at high concurrency does.
    """
    target = resolved.target
    if target.engine.kind != "vllm" or not is_gpt_oss(target) or target.kv.transfer is None:
        return
    for role, workers in target.workers.items():
        if role is Role.AGGREGATED:
            continue
        value = role_args(target, workers).get("disable-hybrid-kv-cache-manager")
        if value is not False:
            yield Finding(
                code="hybrid-kv-off",
                what=f"{role} workers run without the hybrid KV manager"
                + ("" if value else " (NIXL turns it off in silence)"),
                severity=Severity.WARNING,
                where=arg_origin(resolved, role, "disable-hybrid-kv-cache-manager"),
                why="sliding-window layers store full KV: about half the tokens fit",
                fix="engine.args.disable-hybrid-kv-cache-manager: false",
                link="vllm#42024",
            )
            return


def roles_equal(resolved: Resolved) -> Iterator[Finding]:
    """Prefill and decode exchange raw KV: what decides its layout must be the same on both.

    KV dtype and block size are stated once. A quantization or dtype given to one role only makes blocks that the other
    side cannot read; NIXL refuses the handshake, or decode computes on garbage.
    """
    target = resolved.target
    given = dict(target.workers.items())
    if target.engine.kind != "vllm" or not {Role.PREFILL, Role.DECODE} <= set(given):
        return
    prefill, decode = (role_args(target, given[role]) for role in (Role.PREFILL, Role.DECODE))
    for name in ("quantization", "dtype", "disable-hybrid-kv-cache-manager", "trust-remote-code"):
        if prefill.get(name) != decode.get(name):
            yield Finding(
                code="roles-differ",
                what=f"{name} is {_shown(prefill.get(name))} on prefill and {_shown(decode.get(name))} on decode",
                where=arg_origin(resolved, Role.DECODE, name),
                why="it decides how KV is laid out, and the roles exchange it as it is",
                fix=f"give it once, as engine.args.{name}",
            )


def _shown(value: object) -> str:
    return "not given" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
