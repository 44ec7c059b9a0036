"""The event broker as a process of the plan; see `event_broker` and `event_mesh` for what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from launcher.engines import event_broker, event_mesh
from launcher.engines.base import Context, PortNeed, helper
from launcher.plan.join import Join
from launcher.plan.model import Process

NAME = "events"
STOP_STAGE = 3
LONGEST_SOCKET = 107
"""Bytes of a unix socket's path that Linux takes."""


def sockets(run_dir: str) -> tuple[str, str]:
    """Paths of the publishers' and the subscribers' socket."""
    return f"{run_dir}/ev.in", f"{run_dir}/ev.out"


def peers_file(run_dir: str) -> str:
    """The file that names the other nodes' events."""
    return f"{run_dir}/ev.peers"


def broker_url(run_dir: str) -> str:
    """Value of `DYN_ZMQ_BROKER_URL`."""
    publishers, subscribers = sockets(run_dir)
    return f"xsub=ipc://{publishers} , xpub=ipc://{subscribers}"


def wanted(join: Join) -> bool:
    """Whether the deployment has a broker: under Kubernetes nothing could tell brokers of each other."""
    return join.backend != "kubernetes"


def port_needs(join: Join) -> tuple[PortNeed, ...]:
    """Past one node the other nodes fetch this one's events."""
    return () if join.alone else (PortNeed("events"),)


def build(context: Context, ports: Mapping[str, int], incarnation: int = 0) -> Process:
    """The process of the broker. It keeps its sockets over restarts: peers reconnect to them."""
    publishers, subscribers = sockets(context.run_dir)
    program = event_broker.__file__ if context.join.alone else event_mesh.__file__
    argv = [context.python, str(Path(program)), f"ipc://{publishers}", f"ipc://{subscribers}"]
    if not context.join.alone:
        argv += [f"tcp://{context.join.host}:{ports['events']}", peers_file(context.run_dir)]
    return helper(NAME, argv, ports, STOP_STAGE, incarnation)
