"""The gate to etcd as a process of the plan; see `etcd_gate` for why there is one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from launcher.engines import etcd_gate
from launcher.engines.base import Context, PortNeed, helper
from launcher.plan.join import Join
from launcher.plan.model import Process

NAME = "etcd-gate"
PURPOSE = "etcd"
PORT_NEEDS = (PortNeed(PURPOSE),)
STOP_STAGE = 3
"""After the workers, which unregister through it."""
FILES = {"ETCD_AUTH_CA": "--ca", "ETCD_AUTH_CLIENT_CERT": "--cert", "ETCD_AUTH_CLIENT_KEY": "--key"}
"""Variables that name the files of TLS, and the gate's flags for them. Dynamo never sees them."""


def secure(join: Join) -> bool:
    """Whether etcd is behind TLS."""
    return join.backend == "etcd" and any(each.startswith("https:") for each in join.endpoints)


def wanted(join: Join) -> bool:
    """Whether there is one: etcd is behind TLS, or has several members, one of which may fall silent."""
    return secure(join) or (join.backend == "etcd" and len(join.endpoints) > 1)


def endpoint(port: int) -> str:
    """What Dynamo is told of etcd."""
    return f"http://127.0.0.1:{port}"


def build(context: Context, ports: Mapping[str, int], incarnation: int = 0) -> Process:
    """The process of the gate. It keeps its port over restarts: Dynamo's processes were told of it."""
    # Without `site`: it must listen before Dynamo asks, and earlier releases ask once.
    argv = [
        context.python,
        "-ES",
        str(Path(etcd_gate.__file__)),
        str(ports[PURPOSE]),
        *context.join.endpoints,
    ]
    for variable, flag in FILES.items():
        if path := context.inherited.get(variable):
            argv += [flag, path]
    return helper(NAME, argv, ports, STOP_STAGE, incarnation)
