"""The environment that every Dynamo process of a single-node deployment shares.

Sources: how Dynamo behaves on one node, measured (`docs/dynamo.md` names each observation).
"""

from __future__ import annotations

from launcher.engines.base import Context, Slot

SCRUB = (
    # A rank that TensorRT-LLM spawns inherits everything: a batch system's or another MPI's variables make it
    # join the wrong world.
    "SLURM_*",
    "PMI_*",
    "PMIX_*",
    "OMPI_COMM_*",
    "OMPI_UNIVERSE_*",
    # These silently set defaults of dynamo.trtllm.
    "DYN_TRTLLM_*",
    # Ours; a child that is a launcher itself must not take them for its own.
    "LAUNCHER_*",
)
LOOPBACK = "127.0.0.1"
PASSED_ON = ("DYN_LOG",)


def shared(context: Context, slot: Slot) -> dict[str, str]:
    """Discovery, planes and logging: the same for the frontend and every worker."""
    env = {
        "DYN_NAMESPACE": context.namespace,
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": context.discovery_dir,
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
        # Dynamo's planes know no authentication: on one node they stay on loopback.
        "DYN_SYSTEM_HOST": LOOPBACK,
        "DYN_TCP_RPC_HOST": LOOPBACK,
        "DYN_TCP_RESPONSE_STREAM_HOST": context.loopback,
        "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if context.json_logs:
        env["DYN_LOGGING_JSONL"] = "1"
    if "system" in slot.ports:
        env["DYN_SYSTEM_PORT"] = str(slot.ports["system"])
    if "rpc" in slot.ports:
        env["DYN_TCP_RPC_PORT"] = str(slot.ports["rpc"])
    return env


def endpoint_health() -> dict[str, str]:
    """The system port's `/health` turns 200 when the `generate` endpoint serves, not before and not never."""
    return {"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]'}
