"""The Dynamo frontend: OpenAI API, router, parsers."""

from __future__ import annotations

from launcher.engines import environment, flags, model
from launcher.engines.base import Context, PortNeed, Slot
from launcher.plan.model import Http, Process, Stop

# Workers send their answers back to it. The frontend's request port (1.3.1, 1.4.2) stays of the kernel's choice, on
# loopback: a frontend that is given DYN_TCP_RPC_PORT never lists a model there.
PORT_NEEDS = (PortNeed("stream"),)
SILENT_S = 120
"""Seconds without a word from a worker after which its request moves to another (past one node)."""


def build(context: Context, slot: Slot) -> Process:
    """The process of the frontend."""
    target = context.target
    router = target.router
    argv = [context.python, "-m", "dynamo.frontend", "--router-mode", router.mode]
    if router.mode == "kv":
        argv.append("--no-router-kv-events" if router.approximate else "--router-kv-events")
    argv += ["--kv-cache-block-size", str(target.kv.block_size)]
    argv += ["--migration-limit", str(target.frontend.migration_limit)]
    # With a port of its own it is reached through the launcher (`launcher.frontdoor`) and by nobody else.
    http_port = slot.ports.get("http", context.http_port)
    http_host = context.http_host if http_port == context.http_port else environment.LOOPBACK
    argv += ["--http-host", http_host, "--http-port", str(http_port)]
    argv += flags.to_argv(target.frontend.args)
    env = environment.shared(context, slot)
    # After this the listener closes and a 503 becomes a refused connection; streams go on either way.
    env["DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"] = str(max(1, int(context.frontend_drain_s)))
    if not context.join.alone:
        # A node without power closes no connection: without this its streams would stand for ever. Below the longest
        # wait for a first token it would take healthy workers for lost ones.
        env["DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS"] = str(SILENT_S)
    env |= model.model_env(context)
    env |= flags.to_env(target.frontend.env)
    host = "127.0.0.1" if http_host in ("0.0.0.0", "::") else http_host
    return Process(
        name=slot.name,
        role=slot.role,
        argv=tuple(argv),
        env=env,
        ports={"http": http_port, **slot.ports},
        health=Http(host, http_port, "/health"),
        stop=Stop(leader_s=context.frontend_drain_s),
        stop_stage=0,
        incarnation=slot.incarnation,
    )
