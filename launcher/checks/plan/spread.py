"""A deployment over several nodes: what its parts may be, and who can reach its planes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from launcher.checks.versions import releases
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan, Role
from launcher.target.resolve import Resolved


def disaggregated(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """vLLM's prefill and decode workers on different nodes: the public recipe supports them in one pod only.

    KV then moves over the network by NIXL. Without RDMA that is TCP: a prompt of 64k tokens has about 1 GiB of KV
    in fp8, and every answer waits for it. Nothing says so: all requests are answered with 200. TensorRT-LLM's
    disaggregated target is made for two nodes (GB200 trays of four GPUs), so this is about vLLM alone.
    """
    if resolved.target.engine.kind != "vllm" or not plan.claims.disaggregated or plan.join.alone:
        return
    roles = {process.role for process in plan.workers}
    missing = {Role.PREFILL, Role.DECODE} - roles
    if not roles:
        return
    if not missing:
        yield Finding(
            code="disagg-nodes",
            what="prefill and decode here, and perhaps on other nodes of the namespace",
            severity=Severity.INFO if plan.join.disagg else Severity.WARNING,
            where="--discovery",
            why="the router pairs any prefill worker with any decode worker: KV would cross nodes",
            fix="one node with workers for each --dynamo-namespace, or --allow-multi-node-disagg",
        )
        return
    yield Finding(
        code="disagg-nodes",
        what=f"{' and '.join(sorted(roles))} here and {' and '.join(sorted(missing))} on another node",
        severity=Severity.WARNING if plan.join.disagg else Severity.ERROR,
        where="--roles",
        why="the recipe calls vLLM disaggregation over several pods unsupported: KV moves by the network, and by TCP "
        "where no RDMA device is found",
        fix="watch the proofs `KV transfer` and `fast lane`, set UCX_NET_DEVICES in engine.env"
        if plan.join.disagg
        else "both roles on each node (aggregated targets need no transfer), or --allow-multi-node-disagg",
    )


def planes(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Past one node Dynamo's planes listen on the advertised address, and ask nobody for a password.

    Who reaches them can send requests past the frontend, and read prompts in events. A private network, or a firewall
    between the nodes and everyone else, is needed. Under Kubernetes discovery the event publishers listen on every
    address of the pod: there the launcher has no broker that would spare them.
    """
    join = plan.join
    if join.alone:
        return
    if ipaddress.ip_address(join.host).is_loopback:
        yield Finding(
            code="advertise-loopback",
            what=f"the other parts are told {join.host}",
            severity=Severity.INFO,
            where="--advertise",
            why="only processes of this machine reach it",
        )
    elif join.backend == "kubernetes":
        yield Finding(
            code="planes-open",
            what="with kubernetes discovery Dynamo's event publishers listen on every address of the pod",
            severity=Severity.WARNING,
            where="--discovery",
            why="they ask for no password",
            fix="a NetworkPolicy that admits the deployment's own pods, or etcd discovery",
        )
    else:
        yield Finding(
            code="planes-open",
            what=f"request, response and event plane listen on {join.host} ({join.interface})",
            severity=Severity.INFO,
            where="--advertise",
            why="they ask for no password: whoever reaches that address can use them",
            fix="a network of the nodes' own, or a firewall",
        )


def release(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """What Dynamo before 1.6 cannot do past one node, seen with 1.3.1 and 1.4.2 (docs/multi-node.md has the figures).

    Their router goes on to ask a worker that is lost, and prefers it, for it looks idle: requests fail until it is
    withdrawn. The launcher withdraws a dead worker at once, and those of a node that was killed within some 3 s; where
    a node falls silent, its lease must end. 20 s without etcd cost a restart of the frontend.
    """
    dynamo = releases.of(resolved.target, machine.packages).dynamo
    if plan.join.backend != "etcd" or not dynamo or releases.numbers(dynamo) >= (1, 6):
        return
    yield Finding(
        code="nodes-release",
        what=f"Dynamo {dynamo} goes on to ask the workers of a lost node until they are withdrawn",
        severity=Severity.INFO,
        where="--discovery",
        why=f"requests fail meanwhile: some 3 s where it was killed, up to {plan.join.lease_s} s where it is silent",
        fix="Dynamo 1.6, or a shorter --etcd-lease-s, which is also how long etcd may be away",
    )
