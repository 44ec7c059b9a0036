"""How the plan's processes are joined: ports, the model cache, discovery."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.findings import Finding, did_you_mean
from launcher.machine import Machine
from launcher.plan.model import Plan, Process, Role
from launcher.target.resolve import Resolved

BACKEND = "DYN_DISCOVERY_BACKEND"
BACKENDS = ("file", "etcd", "kubernetes")
CACHE = ("HF_HUB_CACHE", "HF_HOME", "HUGGINGFACE_HUB_CACHE")


def ports_distinct(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """No two sockets of a plan have one port; a NIXL side channel takes as many in a row as the worker has ranks."""
    owners: dict[int, str] = {plan.http_port: "the API"}
    taken = [(plan.admin_port, "the admin server")]
    for process in plan.processes:
        taken += [
            (port, f"{process.name} {purpose}")
            for purpose, port in process.ports.items()
            if purpose != "http"
        ]
    for port, owner in taken:
        if port in owners:
            yield Finding(
                code="port-twice",
                what=f"port {port} is both {owners[port]}'s and {owner}'s",
                where=resolved.origin("network", "base_port"),
                why="the second of them could not listen",
                fix="another --http-port, --admin-port or --base-port",
                link="dynamo#14838, cloudai#771",
            )
        owners.setdefault(port, owner)


def _named(plan: Plan) -> list[Process]:
    return [process for process in plan.processes if process.role is not Role.HELPER]


def one_cache(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Frontend and workers read tokenizer and config of one snapshot, from one model cache.

    The frontend looks the model up for itself, by its name. With a cache of its own it downloads another revision, or
    fails where it may not.
    """
    for name in CACHE:
        values = {process.env.get(name, "") for process in _named(plan)}
        if len(values) > 1:
            without = [process.name for process in _named(plan) if name not in process.env]
            yield Finding(
                code="cache-split",
                what=f"{name} is {' and '.join(repr(value) for value in sorted(values))} in different processes",
                where=resolved.origin("engine", "env", name),
                why="frontend and workers would read the model from two places",
                fix=f"set {name} in the launcher's environment: every child inherits it"
                + (f" ({', '.join(without[:3])} have none)" if without else ""),
                link="dynamo#11178, dynamo#5028",
            )


def discovery(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Frontend and workers find each other through one discovery backend: file, etcd or kubernetes."""
    values = {process.env.get(BACKEND, "") for process in _named(plan)} - {""}
    if len(values) > 1:
        yield Finding(
            code="discovery-mixed",
            what=f"{BACKEND} is {' and '.join(sorted(values))} in different processes",
            where=resolved.origin("engine", "env", BACKEND),
            why="the frontend would never see the workers",
            fix=f"one value, in engine.env and frontend.env; on one node leave {BACKEND} to the launcher",
        )
    for value in sorted(values - set(BACKENDS)):
        yield Finding(
            code="discovery-unknown",
            what=f"{BACKEND} is {value!r}",
            where=resolved.origin("engine", "env", BACKEND),
            why="Dynamo exits, or falls back to a backend of one process only (mem)",
            fix=did_you_mean(value, BACKENDS),
        )
