"""The environment that every Dynamo process of a deployment shares.

Each value was seen to be needed on real processes of Dynamo 1.3.1, 1.4.2 and 1.6.1 (`tests/e2e`).
"""

from __future__ import annotations

import ipaddress

from launcher.engines import events, gate
from launcher.engines.base import Context, Slot

SCRUB = (
    # A rank that TensorRT-LLM spawns inherits everything: a batch system's or another MPI's variables make it
    # join the wrong world.
    "SLURM_*",
    "PMI_*",
    "PMIX_*",
    "OMPI_COMM_*",
    "OMPI_UNIVERSE_*",
    # Each of them silently sets a flag's default, DYN_ROUTER_MODE in a worker even over the frontend's own
    # (1.6.1). What the plan shows is all that Dynamo gets; a target's `env` is the place for more.
    "DYN_*",
    # Paths, for the launcher and its gate to etcd. Dynamo takes them for PEM texts (1.3.1 to 1.6.1).
    *gate.FILES,
    # Ours; a child that is a launcher itself must not take them for its own.
    "LAUNCHER_*",
)
LOOPBACK = "127.0.0.1"
PASSED_ON = ("DYN_LOG",)
"""A person's choice in the launcher's own environment that every child gets all the same."""
QUIET = {
    # Ten lines a request would bury what matters. The frontend's "request received" and "request completed" stay: they
    # name the model, the status and the tokens.
    "dynamo_llm::http::service::service_v2": "warn",
    "dynamo_kv_router::scheduling::selector": "warn",
    "dynamo_runtime::pipeline::network::ingress::push_handler": "warn",
    # One line of 2 kB.
    "dynamo_llm::mocker": "warn",
    # 1.6.1 calls DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS unused, several times a process; the mocker's `/health` stays
    # 503 without it all the same.
    "dynamo_runtime::config": "error",
    # An error for each look at a health page while an engine loads: four a second and worker, ours. What fails for
    # other reasons is written by who failed.
    "tower_http::trace::on_failure": "off",
    # That the model takes no images.
    "mm_routing": "error",
    # "Adding worker", as a warning, of each that was planned.
    "dynamo_kv_router::sequences::multi_worker": "error",
    # Its warnings are all of one kind: 1.6.1 unregisters twice at a clean stop, and the second time finds nothing.
    # The publisher's like of them stays: gaps in the KV events are warnings of the same module.
    "dynamo_runtime::component::endpoint": "error",
}
QUIET_BEFORE_1_4 = {
    # Topics have no scope there: the decode side hears the prefill workers' events, looks for their owners in vain and
    # says so for ever. Nothing is applied twice (1,463 requests: 1,463 events).
    "dynamo_llm::kv_router::indexer::recovery::worker_query": "error",
}


def shared(context: Context, slot: Slot) -> dict[str, str]:
    """Discovery, planes and logging: the same for the frontend and every worker."""
    join = context.join
    env = {
        "DYN_NAMESPACE": join.namespace,
        "DYN_DISCOVERY_BACKEND": join.backend,
        **_discovery(context),
        **_home(context),
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
        # Dynamo's planes know no authentication: on one node they stay on loopback, past it on one address.
        "DYN_SYSTEM_HOST": join.host,
        "DYN_TCP_RPC_HOST": join.host,
        **_response_plane(context),
        "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if context.json_logs:
        env["DYN_LOGGING_JSONL"] = "1"
    env["DYN_LOG"] = log_filter(context)
    env |= {name: context.inherited[name] for name in PASSED_ON if name in context.inherited}
    if "system" in slot.ports:
        env["DYN_SYSTEM_PORT"] = str(slot.ports["system"])
    if "rpc" in slot.ports:
        env["DYN_TCP_RPC_PORT"] = str(slot.ports["rpc"])
    if "stream" in slot.ports:
        env["DYN_TCP_RESPONSE_STREAM_PORT"] = str(slot.ports["stream"])
    return env


def _response_plane(context: Context) -> dict[str, str]:
    """Where the frontend hears the workers' answers.

    Before 1.5 it takes the last address of the interface that is named, an IPv6 link-local one on most, and cannot
    listen there; an address is no name to it. Left alone it takes the one that leads out, which a check compares.
    """
    if context.dynamo < (1, 5) and not ipaddress.ip_address(context.join.host).is_loopback:
        return {}
    return {"DYN_TCP_RESPONSE_STREAM_HOST": context.join.interface}


def _discovery(context: Context) -> dict[str, str]:
    """Where the processes find each other, and the way of their events."""
    join = context.join
    if join.backend == "kubernetes":
        # Nothing could tell brokers of each other: Dynamo's publishers bind for themselves and are found by discovery.
        return {"DYN_EVENT_PLANE_HOST": join.host}
    broker = {"DYN_ZMQ_BROKER_URL": events.broker_url(context.run_dir)}
    if join.backend == "etcd":
        # User and password (ETCD_AUTH_*) are inherited: no plan shows them.
        endpoints = gate.endpoint(context.etcd_port) if context.etcd_port else ",".join(join.endpoints)
        return broker | {"ETCD_ENDPOINTS": endpoints, "ETCD_LEASE_TTL": str(join.lease_s)}
    return broker | {"DYN_FILE_KV": context.discovery_dir}


def _home(context: Context) -> dict[str, str]:
    """Where the user's home cannot be written: the frontend keeps model cards in it and would never list the model."""
    if context.lost_home is None:
        return {}
    env = {"HOME": context.run_dir}
    if not any(context.inherited.get(name) for name in ("HF_HOME", "XDG_CACHE_HOME")) and context.lost_home:
        # The weights may well be there, to read.
        env["HF_HOME"] = f"{context.lost_home}/.cache/huggingface"
    return env


def endpoint_health() -> dict[str, str]:
    """The system port's `/health` turns 200 when the `generate` endpoint serves, not before and not never."""
    return {"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]'}


def log_filter(context: Context) -> str:
    """Value of `DYN_LOG` where nobody chose one: a level, then modules that say too much at it."""
    quiet = dict(QUIET)
    if context.dynamo < (1, 4) and context.disaggregated:
        quiet |= QUIET_BEFORE_1_4
    return ",".join(["info", *(f"{module}={level}" for module, level in quiet.items())])
