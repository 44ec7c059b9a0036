"""The environment that every Dynamo process of a single-node deployment shares.

Each value was seen to be needed on real processes of Dynamo 1.3.1, 1.4.2 and 1.6.1 (`tests/e2e`).
"""

from __future__ import annotations

from launcher.engines import events
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
    # Ours; a child that is a launcher itself must not take them for its own.
    "LAUNCHER_*",
)
LOOPBACK = "127.0.0.1"
PASSED_ON = ("DYN_LOG",)
"""A person's choice in the launcher's own environment that every child gets all the same."""


def shared(context: Context, slot: Slot) -> dict[str, str]:
    """Discovery, planes and logging: the same for the frontend and every worker."""
    env = {
        "DYN_NAMESPACE": context.namespace,
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": context.discovery_dir,
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
        "DYN_ZMQ_BROKER_URL": events.broker_url(context.run_dir),
        # Dynamo's planes know no authentication: on one node they stay on loopback.
        "DYN_SYSTEM_HOST": LOOPBACK,
        "DYN_TCP_RPC_HOST": LOOPBACK,
        "DYN_TCP_RESPONSE_STREAM_HOST": context.loopback,
        "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if context.json_logs:
        env["DYN_LOGGING_JSONL"] = "1"
    env |= {name: context.inherited[name] for name in PASSED_ON if name in context.inherited}
    if "system" in slot.ports:
        env["DYN_SYSTEM_PORT"] = str(slot.ports["system"])
    if "rpc" in slot.ports:
        env["DYN_TCP_RPC_PORT"] = str(slot.ports["rpc"])
    if "stream" in slot.ports:
        env["DYN_TCP_RESPONSE_STREAM_PORT"] = str(slot.ports["stream"])
    return env


def endpoint_health() -> dict[str, str]:
    """The system port's `/health` turns 200 when the `generate` endpoint serves, not before and not never."""
    return {"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]'}
