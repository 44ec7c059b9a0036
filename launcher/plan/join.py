"""How one launcher's part of a deployment joins the others: discovery, addresses, names. The default is one node."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from launcher.findings import Finding, LauncherError
from launcher.machine import Machine

LOOPBACK = "127.0.0.1"
ENDPOINTS = "ETCD_ENDPOINTS"
ENDPOINTS_DEFAULT = "http://localhost:2379"
"""Dynamo's own."""
LEASE_TTL_S = 30
"""A lost node is in discovery for so long, and an outage of etcd that takes longer ends every process (measured: 1,291
failed requests at Dynamo's own 10 s and an outage of 20 s, none at 60). A frontend of 1.6.1 stops to ask a node that
does not answer long before."""
WORD = re.compile(r"^[a-zA-Z0-9]([a-zA-Z0-9_-]*[a-zA-Z0-9])?$")
"""A Dynamo namespace, or a node's name in keys: no dot, no slash."""


@dataclass(frozen=True, slots=True)
class Join:
    """Where this part's planes listen, and where the other parts are found."""

    backend: str = "file"
    """`file`: this machine alone; `etcd`; `kubernetes`."""
    host: str = LOOPBACK
    """The address on which the request plane and the workers' status servers listen, and which the others are told."""
    interface: str = "lo"
    """The interface that has it: Dynamo's response plane and NCCL want a name."""
    namespace: str = ""
    """Dynamo's: processes of other namespaces are not seen."""
    node: str = ""
    """What the other parts call this one."""
    endpoints: tuple[str, ...] = ()
    """URLs of etcd."""
    lease_s: int = LEASE_TTL_S
    """Time to live of every registration in etcd, seconds."""
    roles: tuple[str, ...] = ()
    """The target's roles that run here; empty for all of them."""
    disagg: bool = False
    """vLLM's prefill and decode may be on different nodes: somebody said so."""

    @property
    def alone(self) -> bool:
        """Whether the deployment is this launcher's alone."""
        return self.backend == "file"

    def has(self, role: str) -> bool:
        """Whether the role runs here."""
        return not self.roles or role in self.roles

    def to_json(self) -> dict[str, Any]:
        """As the plan shows it."""
        return {
            "discovery": self.backend,
            "namespace": self.namespace,
            "node": self.node,
            "address": self.host,
            "interface": self.interface,
            "roles": list(self.roles),
            "etcd": list(self.endpoints),
            "lease_s": self.lease_s,
        }


ALONE = Join()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line or `LAUNCHER_*` variables say; empty where they say nothing."""

    backend: str = "file"
    endpoints: str = ""
    advertise: str = ""
    namespace: str = ""
    node: str = ""
    roles: Sequence[str] = ()
    lease_s: int = LEASE_TTL_S
    disagg: bool = False


def settle(
    wanted: Wanted,
    *,
    target: str,
    present: Sequence[str],
    machine: Machine,
    environ: Mapping[str, str],
    given: Mapping[str, str],
) -> Join:
    """The join of a target (`present`: the roles it has) on a machine. Raises LauncherError with all faults.

    `given`: setting to who set it.
    """
    faults = list(_contradictions(wanted, present, given))
    namespace = wanted.namespace or target
    node = (
        wanted.node or re.sub(r"[^a-zA-Z0-9-]+", "-", machine.hostname.partition(".")[0]).strip("-") or "node"
    )
    for field, setting, value in (("namespace", "dynamo_namespace", namespace), ("node", "node", node)):
        if not WORD.match(value):
            faults.append(
                Finding(
                    code=f"{field}-name",
                    what=f"{value!r} is no name of a {field}",
                    where=given.get(setting, "--" + setting.replace("_", "-")),
                    why="it becomes part of keys in discovery",
                    fix="letters, digits and dashes",
                )
            )
    if wanted.backend == "file":
        if faults:
            raise LauncherError(faults)
        loopback = next((each.name for each in machine.interfaces if each.loopback), "lo")
        return Join(interface=loopback, namespace=namespace, node=node, roles=tuple(wanted.roles))
    endpoints: tuple[str, ...] = ()
    if wanted.backend == "etcd":
        text = wanted.endpoints or environ.get(ENDPOINTS) or ENDPOINTS_DEFAULT
        endpoints = tuple(_with_scheme(each.strip()) for each in text.split(",") if each.strip())
    pod = environ.get("POD_IP", "") if wanted.backend == "kubernetes" else ""
    try:
        host, interface = _address(wanted.advertise or pod, endpoints, machine, given)
    except LauncherError as error:
        raise LauncherError([*faults, *error.findings]) from None
    if faults:
        raise LauncherError(faults)
    return Join(
        wanted.backend,
        host,
        interface,
        namespace,
        node,
        endpoints,
        wanted.lease_s,
        tuple(wanted.roles),
        wanted.disagg,
    )


def _contradictions(wanted: Wanted, present: Sequence[str], given: Mapping[str, str]) -> list[Finding]:
    known = ["frontend", *present]
    faults = [
        Finding(
            code="role-unknown",
            what=f"the target has no role {role!r}",
            where=given.get("roles", "--roles"),
            fix="some of " + ", ".join(known),
        )
        for role in wanted.roles
        if role not in known
    ]
    part = bool(wanted.roles) and not set(known) <= set(wanted.roles)
    if part and wanted.backend == "file":
        faults.append(
            Finding(
                code="roles-alone",
                what=f"--roles {','.join(wanted.roles)} starts a part, and file discovery joins it to nothing",
                where=given.get("roles", "--roles"),
                why="the roles that run elsewhere could not be found: no request would be answered",
                fix="--discovery etcd --etcd-endpoints http://HOST:2379 on every node",
            )
        )
    for field in ("etcd_endpoints", "advertise"):
        if given.get(field) and wanted.backend == "file":
            flag = "--" + field.replace("_", "-")
            faults.append(
                Finding(
                    code="discovery-unused",
                    what=f"{flag} without --discovery: file discovery is of this machine alone",
                    where=given[field],
                    fix=f"--discovery etcd, or leave {flag} out",
                )
            )
    return faults


def _with_scheme(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"http://{endpoint}"


def _address(
    wanted: str, endpoints: Sequence[str], machine: Machine, given: Mapping[str, str]
) -> tuple[str, str]:
    """Address and interface of the planes: the one that is asked for, else the one that leads to etcd."""
    where = given.get("advertise", "--advertise")
    own = [each for each in machine.interfaces if each.address and each.up]
    outside = [each for each in own if not each.loopback]
    choices = ", ".join(f"{each.address} ({each.name})" for each in outside) or "none but loopback is up"
    if wanted:
        named = next((each for each in own if wanted in (each.name, each.address)), None)
        if named is not None:
            return named.address, named.name
        raise LauncherError(
            Finding(
                code="advertise-wildcard" if _is_wildcard(wanted) else "advertise-other",
                what=f"{wanted} is {'every address' if _is_wildcard(wanted) else 'no address of this machine'}",
                where=where,
                why="the planes ask for no password and listen on one address only, which the other nodes are told",
                fix=f"one of: {choices}",
            )
        )
    source = "" if machine.simulated else source_address(endpoints)
    for each in outside:
        if each.address == source:
            return each.address, each.name
    if len(outside) == 1 or (outside and machine.simulated):
        return outside[0].address, outside[0].name
    raise LauncherError(
        Finding(
            code="advertise-unclear",
            what="several addresses could be the one that other nodes reach"
            if outside
            else "no interface but loopback has an address",
            where=where,
            why="the other nodes must be told one that they reach",
            fix=f"--advertise ADDRESS, one of: {choices}"
            if outside
            else f"--advertise {LOOPBACK} where all parts run on this machine",
        )
    )


def _is_wildcard(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return text == "*"


def source_address(endpoints: Sequence[str] = ()) -> str:
    """The address from which this machine would speak to etcd (or, without, to the world); no packet is sent."""
    for endpoint in (*endpoints, "http://192.0.2.1:9"):
        parts = urlsplit(endpoint)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect((parts.hostname or "", parts.port or 2379))
                address = str(sock.getsockname()[0])
            except (OSError, ValueError):
                continue
        if not address.startswith("127."):
            return address
    return ""
