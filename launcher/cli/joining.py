"""Options of a deployment that is more than one node's, and what they say about this node's part."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

from launcher.machine import Machine
from launcher.plan.join import Join, Wanted, settle
from launcher.settings import Settings
from launcher.target.schema import Target


def add_options(parser: argparse.ArgumentParser) -> None:
    """None has a default here, so that the environment's values count."""
    group = parser.add_argument_group("past one node")

    def option(flag: str, **kwargs: Any) -> None:
        group.add_argument(flag, default=argparse.SUPPRESS, **kwargs)

    option(
        "--roles", metavar="ROLE,...", help="start a part of the target here: frontend, prefill, decode, ..."
    )
    option("--discovery", metavar="BACKEND", help="file (this machine alone), etcd or kubernetes")
    option("--etcd-endpoints", metavar="URL,...", help="of etcd; credentials are ETCD_AUTH_* variables")
    option("--etcd-lease-s", metavar="SECONDS", help="how long a lost node stays in discovery")
    option(
        "--advertise", metavar="ADDRESS", help="address or interface on which the other nodes reach this one"
    )
    option("--node", metavar="NAME", help="what the other nodes call this one (default: its host name)")
    option(
        "--dynamo-namespace",
        metavar="NAME",
        help="keeps deployments on one etcd apart (default: the target's name)",
    )
    option(
        "--allow-multi-node-disagg",
        action="store_true",
        help="vLLM's prefill and decode on different nodes, which the recipe calls unsupported",
    )


def join_for(settings: Settings, given: Mapping[str, str], target: Target, machine: Machine) -> Join:
    """How this part of the deployment joins the others. Raises LauncherError where the options contradict."""
    wanted = Wanted(
        settings.discovery,
        settings.etcd_endpoints or "",
        settings.advertise or "",
        settings.dynamo_namespace or "",
        settings.node or "",
        settings.roles,
        settings.etcd_lease_s,
        settings.allow_multi_node_disagg,
    )
    present = [role.value for role, _ in target.workers.items()]
    return settle(
        wanted, target=target.name, present=present, machine=machine, environ=os.environ, given=given
    )
