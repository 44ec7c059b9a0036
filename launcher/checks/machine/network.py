"""Ports and interfaces: ours to take, outside the kernel's range, and on interfaces that exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from launcher.checks.machine.base import listed
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan, Role
from launcher.target.schema import Target

LOOPBACK = "127.0.0.1"
BY_NAME = ("DYN_TCP_RESPONSE_STREAM_HOST", "GLOO_SOCKET_IFNAME")
"""Variables that hold the name of an interface, not an address."""


HOST_OF = {"--http-port": "--http-host", "--admin-port": "--admin-host", "--base-port": "--advertise"}
"""What sets a socket's port to what sets its address."""


class Bound(NamedTuple):
    """One socket of the plan."""

    host: str
    port: int
    owner: str
    """`frontend http`: who listens there and for what."""
    where: str
    """What sets it."""


def bound(plan: Plan) -> list[Bound]:
    """Every port of the plan, each once."""
    found = [Bound(plan.http_host, plan.http_port, "the API", "--http-port")]
    found.append(Bound(plan.admin_host, plan.admin_port, "the admin server", "--admin-port"))
    seen = {plan.http_port, plan.admin_port}
    for process in plan.processes:
        for purpose, port in process.ports.items():
            if port not in seen:
                seen.add(port)
                found.append(Bound(plan.join.host, port, f"{process.name} {purpose}", "--base-port"))
    return found


def taken(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Every port of the plan must be free on the address that will be bound.

    Dynamo does not always say so: a worker whose system port is taken runs on without its status server, and a NIXL
    side channel that cannot bind leaves a start that never ends.
    """
    # `port-privileged` says what is below.
    tried = [each for each in bound(plan) if not privileged_port(each.port, machine)]
    errors = {each: machine.probe.port_error(each.host, each.port) for each in tried}
    holders = {
        each: machine.probe.port_holder(each.host, each.port) for each, error in errors.items() if error
    }
    others = _others(machine, [each for each, holder in holders.items() if holder is not None])
    for each, holder in holders.items():
        host, port, owner, where = each
        error = errors[each]
        if holder is not None:
            pid = holder.launcher or holder.pid
            yield Finding(
                code="port-taken",
                what=f"port {port} of {owner} is held by {holder}",
                where=where,
                why="the process would exit, or run on without this socket",
                fix=f"{others}, or end {f'pid {pid}' if pid else 'the holder'}",
                link="dynamo#14838, cloudai#771, NeMo-RL#3391",
            )
        else:
            yield Finding(
                code="port-unusable",
                what=f"{owner} cannot listen on {host}:{port}: {error}",
                # Nobody holds the port: it is the address that cannot be had.
                where=HOST_OF[where],
                why="the process would exit, or run on without this socket",
                fix="an address of this machine: "
                + listed([each.address for each in machine.interfaces if each.address] + ["0.0.0.0"]),
                link="dynamo#2706",
            )


def _others(machine: Machine, taken: list[Bound]) -> str:
    """The flags that move all of them at once, each to the nearest port above that could be bound now."""
    moved: dict[str, int] = {}
    for host, port, _, flag in taken:
        if flag not in moved:
            above = (
                number for number in range(port + 1, min(port + 200, 65536)) if number not in moved.values()
            )
            free = (number for number in above if machine.probe.port_error(host, number) is None)
            moved[flag] = next(free, port + 1)
    return " ".join(f"{flag} {port}" for flag, port in moved.items())


def privileged_port(port: int, machine: Machine) -> bool:
    return 0 < port < machine.unprivileged_port_start and "NET_BIND_SERVICE" not in machine.capabilities


def privileged(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Ports below ip_unprivileged_port_start (1024) need CAP_NET_BIND_SERVICE."""
    for _, port, owner, where in bound(plan):
        if privileged_port(port, machine):
            yield Finding(
                code="port-privileged",
                what=f"port {port} of {owner} is below {machine.unprivileged_port_start}, "
                "and this process has no CAP_NET_BIND_SERVICE",
                where=where,
                why="the bind would be refused",
                fix=f"{where} {port + 8000 if port < 1024 else 8000}, or a Service that maps the port",
            )


def ephemeral(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Ports of the plan should lie outside the range that the kernel gives to outgoing connections.

    Inside it any connection of any process can hold the number at the moment of a start or a restart: a failure that
    comes once in a hundred runs and is gone when looked at.
    """
    low, high = machine.ephemeral_range
    inside = [
        each for each in bound(plan) if low <= each.port <= high and each.port not in machine.reserved_ports
    ]
    if inside:
        yield Finding(
            code="port-ephemeral",
            what=f"port {listed(f'{each.port} ({each.owner})' for each in inside)} in the kernel's range {low}-{high}",
            severity=Severity.WARNING,
            where=inside[0].where,
            why="an outgoing connection can hold the number just when a worker restarts",
            fix=f"choose ports below {low} ({inside[0].where})"
            if low > 1024
            else "narrow net.ipv4.ip_local_port_range, or list the ports in net.ipv4.ip_local_reserved_ports",
            link="NeMo-RL#3391, verl#6677",
        )


def interface_names(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Some variables take the name of an interface: an address, or a name that is not here, fails late.

    With an address in DYN_TCP_RESPONSE_STREAM_HOST the frontend never lists the model; Gloo fails when ranks meet.
    """
    here = [interface.name for interface in machine.interfaces]
    if not here or machine.simulated:
        return
    for name in BY_NAME:
        wrong = {process.env[name] for process in plan.processes if name in process.env} - set(here)
        for value in sorted(wrong):
            yield Finding(
                code="interface-unknown",
                what=f"{name}={value} is no interface of this machine",
                where=f"engine.env.{name}",
                why="it wants a name, not an address; the model would never be listed, or ranks never meet",
                fix="one of: " + listed(here, most=8),
            )


def loopback_only(target: Target, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """A machine whose only interface is loopback serves only itself, and every plane must be told to use loopback.

    Dynamo resolves the machine's own address to advertise it; without another interface that fails, and the frontend
    never lists the model ("Failed to resolve local IP address").
    """
    if not machine.loopback_only or not machine.interfaces:
        return
    unset = [
        process.name
        for process in plan.processes
        if process.role is not Role.HELPER and "DYN_TCP_RESPONSE_STREAM_HOST" not in process.env
    ]
    if unset:
        yield Finding(
            code="loopback-unset",
            what=f"loopback is the only interface, and {listed(unset)} have no DYN_TCP_RESPONSE_STREAM_HOST",
            where="engine.env.DYN_TCP_RESPONSE_STREAM_HOST",
            why="Dynamo finds no address to advertise, and the frontend never lists the model",
            fix="--set engine.env.DYN_TCP_RESPONSE_STREAM_HOST=lo (and frontend.env)",
        )
    elif plan.http_host not in (LOOPBACK, "localhost", "::1"):
        yield Finding(
            code="loopback-only",
            what=f"the API listens on {plan.http_host}, and loopback is the only interface here",
            severity=Severity.INFO,
            where="network.http_host",
            why="nothing outside this machine or container can reach it",
        )
