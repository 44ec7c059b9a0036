"""Flags and variables that the launcher makes itself: stated once, they cannot disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launcher.checks.target.places import flag_name, within, worker_places
from launcher.engines import vllm
from launcher.findings import Finding, Severity
from launcher.plan.model import is_secret
from launcher.target.resolve import Resolved

FRONTEND = {
    "router-mode": "router.mode",
    "router-kv-events": "router.approximate and kv.events",
    "kv-events": "router.approximate and kv.events",
    "kv-cache-block-size": "kv.block_size",
    "migration-limit": "frontend.migration_limit",
    "http-host": "network.http_host",
    "http-port": "network.http_port",
    "namespace": "name",
}
TRTLLM = {
    "model-path": "model.id or model.path",
    "model": "model.id or model.path",
    "served-model-name": "model.served_name",
    "extra-engine-args": "engine.config",
    "override-engine-args": "engine.config",
    "disaggregation-mode": "workers",
    "kv-block-size": "kv.block_size",
    "publish-kv-events": "kv.events",
    "dyn-reasoning-parser": "parsers.reasoning",
    "dyn-tool-call-parser": "parsers.tool_call",
}
SIMULATION = {
    "model-path": "model.id",
    "model-name": "model.served_name",
    "endpoint": "name",
    "block-size": "kv.block_size",
    "disaggregation-mode": "workers",
}
ROLE_FLAGS = ("is-prefill-worker", "is-decode-worker")
"""Dynamo 1.3's way to say a worker's role; removed in 1.4."""

OWN_ENV = {
    "DYN_SYSTEM_PORT": "each process gets its own",
    "DYN_TCP_RPC_PORT": "each process gets its own",
    "DYN_TCP_RESPONSE_STREAM_PORT": "each process gets its own",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "each worker gets its own, and a new one after a restart",
    "CUDA_VISIBLE_DEVICES": "each worker gets its own GPUs; restrict the launcher's own environment instead",
    "DYN_FILE_KV": "each run gets a fresh folder; a used one holds entries of dead workers",
    "DYN_COMPONENT": "it says the worker's role",
    "DYN_ZMQ_BROKER_URL": "it is the run's own event broker",
}


def _owned(kind: str) -> Mapping[str, str]:
    return {"vllm": vllm.OWNED, "trtllm": TRTLLM}.get(kind, {})


def stated_once(resolved: Resolved) -> Iterator[Finding]:
    """A flag that the launcher makes from a typed value of the target is not given again as a raw one.

    Block size, KV dtype, parsers, speculative decoding, ports: frontend, router and workers must agree on them. The
    last of two equal flags wins in argparse, silently, and only in the process that got it.
    """
    target = resolved.target
    owned = _owned(target.engine.kind)
    tables = [(place, owned) for place in worker_places(target, "args")]
    tables += [(("frontend", "args"), FRONTEND), (("simulation", "args"), SIMULATION)]
    for place, table in tables:
        for flag in within(resolved, place):
            plain = flag_name(flag)
            if plain in ROLE_FLAGS:
                yield Finding(
                    code="flag-owned",
                    what=f"{'.'.join(place)}.{flag}: the role comes from workers.*, as --disaggregation-mode",
                    where=resolved.origin(*place, flag),
                    why="Dynamo 1.3 alone knows this flag; 1.4 and later exit on it",
                    fix="remove it",
                    link="dynamo#12089, dynamo#12581",
                )
            elif plain in table:
                extra = ""
                if plain == "override-engine-args":
                    extra = "; it replaces whole groups (kv_cache_config loses its dtype)"
                yield Finding(
                    code="flag-owned",
                    what=f"{'.'.join(place)}.{flag} repeats {table[plain]}",
                    where=resolved.origin(*place, flag),
                    why=f"frontend, router and workers must agree on it, so it is stated once{extra}",
                    fix=f"set {table[plain]} instead",
                )
            elif flag.startswith("trtllm."):
                yield Finding(
                    code="flag-owned",
                    what=f"{'.'.join(place)}.{flag} replaces a whole group of the engine's YAML",
                    where=resolved.origin(*place, flag),
                    why="kv_cache_config loses its dtype and memory fraction that way",
                    fix=f"engine.config.{flag.removeprefix('trtllm.')} instead",
                )


def own_variables(resolved: Resolved) -> Iterator[Finding]:
    """Some variables differ from process to process; given for all of them, they collide.

    Two workers with one DYN_SYSTEM_PORT: the second runs on without its status server (Dynamo 1.3.1), and nothing
    ever says that it is ready.
    """
    places = [*worker_places(resolved.target, "env"), ("frontend", "env"), ("simulation", "env")]
    for place in places:
        for name in within(resolved, place):
            if name in OWN_ENV:
                yield Finding(
                    code="env-owned",
                    what=f"{'.'.join(place)}.{name} is the launcher's to set",
                    where=resolved.origin(*place, name),
                    why=OWN_ENV[name],
                    fix="remove it" + (" (internal ports: --base-port)" if name.endswith("_PORT") else ""),
                    link="dynamo#14838" if "NIXL" in name else "",
                )


def secrets(resolved: Resolved) -> Iterator[Finding]:
    """A token in a target file or behind `--set` can be read by whoever reads the repository, or `ps`.

    The launcher masks such values in all that it prints; where they came from it cannot hide.
    """
    places = [*worker_places(resolved.target, "env"), ("frontend", "env")]
    for place in places:
        for name in within(resolved, place):
            if is_secret(name):
                yield Finding(
                    code="secret-in-target",
                    what=f"{'.'.join(place)}.{name} looks like a secret",
                    severity=Severity.WARNING,
                    where=resolved.origin(*place, name),
                    why="a target file is committed, and a command line can be read in the process list",
                    fix=f"put {name} into the launcher's environment (in a pod: a Secret); children inherit it",
                )


def unused_config(resolved: Resolved) -> Iterator[Finding]:
    """`config` holds keys of TensorRT-LLM's YAML; vLLM reads no such file."""
    if resolved.target.engine.kind != "vllm":
        return
    for place in worker_places(resolved.target, "config"):
        keys = within(resolved, place)
        if keys:
            yield Finding(
                code="config-unused",
                what=f"{'.'.join(place)} has {', '.join(list(keys)[:4])}, and vLLM has no such file",
                severity=Severity.WARNING,
                where=resolved.origin(*place),
                why="nothing would read them",
                fix="engine.args for vLLM's flags",
            )
