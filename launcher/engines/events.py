"""The event broker as a process of the plan; see `event_broker` for what it is for."""

from __future__ import annotations

from pathlib import Path

from launcher.engines import event_broker
from launcher.engines.base import Context
from launcher.plan.model import Process, Role, Stop

NAME = "events"
STOP_STAGE = 3
LONGEST_SOCKET = 107
"""Bytes of a unix socket's path that Linux takes."""


def sockets(run_dir: str) -> tuple[str, str]:
    """Paths of the publishers' and the subscribers' socket."""
    return f"{run_dir}/ev.in", f"{run_dir}/ev.out"


def broker_url(run_dir: str) -> str:
    """Value of `DYN_ZMQ_BROKER_URL`."""
    publishers, subscribers = sockets(run_dir)
    return f"xsub=ipc://{publishers} , xpub=ipc://{subscribers}"


def build(context: Context, incarnation: int = 0) -> Process:
    """The process of the broker. It keeps its sockets over restarts: peers reconnect to them."""
    publishers, subscribers = sockets(context.run_dir)
    return Process(
        name=NAME,
        role=Role.HELPER,
        argv=(
            context.python,
            str(Path(event_broker.__file__)),
            f"ipc://{publishers}",
            f"ipc://{subscribers}",
        ),
        env={},
        stop=Stop(leader_s=2.0),
        stop_stage=STOP_STAGE,
        incarnation=incarnation,
    )
