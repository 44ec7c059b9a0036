"""Past one node: whether the discovery backend that the plan names can be reached, with the error it really gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.checks import reach
from launcher.checks.base import Check, Group
from launcher.checks.inherited import child_env
from launcher.checks.plan.wiring import BACKEND
from launcher.findings import Exit, Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan, Process, Role
from launcher.target.resolve import Resolved

ETCD = "ETCD_ENDPOINTS"
ETCD_DEFAULT = "http://localhost:2379"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RESOURCES = (
    ("discovery.k8s.io/v1", "endpointslices"),
    ("nvidia.com/v1alpha1", "dynamoworkermetadatas"),
)
"""What Dynamo's Kubernetes discovery reads (dynamo-runtime 1.6.1)."""


def backend(plan: Plan) -> str:
    """The discovery backend of the plan's frontend, or of its first Dynamo process."""
    return _process(plan).env.get(BACKEND, "file")


def _process(plan: Plan) -> Process:
    named = [process for process in plan.processes if BACKEND in process.env]
    return next(
        (process for process in named if process.role is Role.FRONTEND),
        named[0] if named else plan.processes[0],
    )


def etcd(resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]) -> Iterator[Finding]:
    """etcd must answer before anything starts: a Dynamo process that cannot reach it exits within seconds.

    Each endpoint is asked for `/health`, as etcd's client port serves it. One that answers is enough.
    """
    if backend(plan) != "etcd":
        return
    env = child_env(_process(plan), environ, plan.scrub)
    endpoints = [each.strip() for each in env.get(ETCD, ETCD_DEFAULT).split(",") if each.strip()]
    if not endpoints:
        yield _etcd(f"{ETCD} is empty", Severity.ERROR, "http://HOST:2379")
        return
    ca_file, certificate = env.get("ETCD_AUTH_CA") or None, env.get("ETCD_AUTH_CLIENT_CERT")
    own = (certificate, env.get("ETCD_AUTH_CLIENT_KEY") or None) if certificate else None
    late = reach.Answer(error=f"no answer within {reach.TIMEOUT_S:g} s")
    answers = reach.together(
        lambda endpoint: reach.get(endpoint.rstrip("/") + "/health", ca_file=ca_file, own=own),
        endpoints,
        late,
    )
    healthy = sum(_healthy(answer) for answer in answers)
    for endpoint, answer in zip(endpoints, answers, strict=True):
        if not _healthy(answer):
            said = answer.error or f"answers {answer.status} {_short(answer.body)}"
            yield _etcd(
                f"etcd at {endpoint}: {said}",
                Severity.WARNING if healthy else Severity.ERROR,
                f"start etcd there, correct {ETCD} ({'default' if ETCD not in env else 'is set'}), "
                "or use file discovery on one node",
            )


def etcd_tls(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Dynamo opens no TLS connection to an etcd of a private authority, whatever ETCD_AUTH_CA and _CLIENT_CERT say.

    Measured with 1.3.1, 1.4.2 and 1.6.1 and an etcd 3.4 of one's own authority: with all three variables the runtime
    gives up before any handshake ("Unable to connect to etcd server"); with none it knows public authorities only.
    The launcher itself can. A forwarder on each node (stunnel or nginx as TLS client, listening on loopback)
    helps both.
    """
    secure = [each for each in plan.join.endpoints if each.startswith("https:")]
    if plan.join.backend == "etcd" and secure and environ.get("ETCD_AUTH_CA"):
        yield Finding(
            code="etcd-tls",
            what=f"{secure[0]} with ETCD_AUTH_CA: Dynamo 1.3.1 to 1.6.1 was seen to open no such connection",
            severity=Severity.WARNING,
            where="ETCD_AUTH_CA",
            why="every Dynamo process waits for two minutes and exits: Unable to connect to etcd server",
            fix="a TLS forwarder on this node (stunnel, nginx) and --etcd-endpoints http://127.0.0.1:2379, or a "
            "certificate of a public authority",
        )


def etcd_rights(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """etcd must also let this deployment in: user and password (ETCD_AUTH_*) are asked for with every call but /health.

    Each Dynamo process signs in for itself with the same variables. Keys are `v1/` and `gpt-oss-launcher/`, read and
    write.
    """
    if plan.join.backend != "etcd" or any(_etcd_away(resolved, plan, machine, environ)):
        return
    import asyncio

    from launcher.discovery import nodes
    from launcher.discovery.etcd import Etcd, EtcdError

    async def ask() -> str:
        client = Etcd(plan.join.endpoints, environ)
        try:
            for prefix in (nodes.folder(plan.join.namespace), f"v1/instances/{plan.join.namespace}/"):
                await client.range(prefix)
        except EtcdError as error:
            return str(error)
        finally:
            await client.close()
        return ""

    said = asyncio.run(ask())
    if said:
        user = environ.get("ETCD_AUTH_USERNAME")
        yield Finding(
            code="etcd-refused",
            what=f"etcd refuses {f'the user {user}' if user else 'calls without a user'}: {said}",
            where="ETCD_AUTH_USERNAME",
            why="every Dynamo process would exit with the same words",
            fix="ETCD_AUTH_USERNAME and ETCD_AUTH_PASSWORD of a user with the right to read and write v1/ and "
            "gpt-oss-launcher/",
        )


def _etcd_away(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[bool]:
    for finding in etcd(resolved, plan, machine, environ):
        yield finding.severity is Severity.ERROR


def _etcd(what: str, severity: Severity, fix: str) -> Finding:
    return Finding(
        code="etcd-unreachable",
        what=what,
        severity=severity,
        where=ETCD,
        why="every Dynamo process would exit: could not connect to etcd",
        fix=fix,
        link="dynamo#3493, dynamo#2315",
    )


def _healthy(answer: reach.Answer) -> bool:
    try:
        return answer.status == 200 and str(json.loads(answer.body)["health"]).lower() == "true"
    except (ValueError, KeyError, TypeError):
        return False


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:117] + "..."


def kubernetes(
    resolved: Resolved,
    plan: Plan,
    machine: Machine,
    environ: Mapping[str, str],
    account: Path = ACCOUNT,
    scheme: str = "https",
) -> Iterator[Finding]:
    """Kubernetes discovery needs the API server, a service account, and the right to read two kinds of objects.

    EndpointSlices say which pods are ready, DynamoWorkerMetadata what they serve; the latter's definition comes with
    the Dynamo operator.
    """
    if backend(plan) != "kubernetes":
        return
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        yield _kubernetes(
            "kubernetes-absent",
            "kubernetes discovery outside of a cluster: KUBERNETES_SERVICE_HOST is not set",
            "run it in a pod, or use file or etcd discovery",
        )
        return
    try:
        token = (account / "token").read_text().strip()
        namespace = environ.get("POD_NAMESPACE") or (account / "namespace").read_text().strip()
    except OSError as error:
        yield _kubernetes(
            "kubernetes-account",
            f"no service account: {error.filename}: {(error.strerror or str(error)).lower()}",
            "automountServiceAccountToken: true, and a serviceAccountName",
        )
        return
    address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    headers = {"Authorization": f"Bearer {token}"}
    ca_file = str(account / "ca.crt") if scheme == "https" else None
    urls = [f"{address}/apis/{group}/namespaces/{namespace}/{kind}?limit=1" for group, kind in RESOURCES]
    late = reach.Answer(error=f"no answer within {reach.TIMEOUT_S:g} s")
    answers = reach.together(lambda url: reach.get(url, headers, ca_file), urls, late)
    for (group, kind), answer in zip(RESOURCES, answers, strict=True):
        if answer.error:
            yield _kubernetes(
                "kubernetes-unreachable",
                f"API server {address}: {answer.error}",
                "look at the cluster's network policy",
            )
            return
        if answer.status in (401, 403):
            yield _kubernetes(
                "kubernetes-forbidden",
                f"the service account may not list {kind} in {namespace}: {answer.status} {_message(answer.body)}",
                f"a Role with get, list, watch (and create, patch for metadata) on {kind}.{group.partition('/')[0]}",
            )
        elif answer.status == 404:
            yield _kubernetes(
                "kubernetes-crd",
                f"the cluster knows no {kind} ({group})",
                "install the Dynamo operator's custom resource definitions of this release",
            )
        elif answer.status != 200:
            yield _kubernetes(
                "kubernetes-unreachable",
                f"API server {address} answers {answer.status} {_message(answer.body)}",
                "look at the API server",
            )


def _kubernetes(code: str, what: str, fix: str) -> Finding:
    return Finding(
        code=code,
        what=what,
        where=BACKEND,
        why="frontend and workers would not find each other",
        fix=fix,
    )


def _message(body: str) -> str:
    try:
        return _short(str(json.loads(body)["message"]))
    except (ValueError, KeyError, TypeError):
        return _short(body)


CHECKS: tuple[Check, ...] = (
    Check(etcd, ("etcd-unreachable",)),
    Check(etcd_tls, ("etcd-tls",)),
    Check(etcd_rights, ("etcd-refused",)),
    Check(
        kubernetes,
        (
            "kubernetes-absent",
            "kubernetes-account",
            "kubernetes-unreachable",
            "kubernetes-forbidden",
            "kubernetes-crd",
        ),
    ),
)

GROUP = Group("cluster", CHECKS, Exit.CHECK_FAILED)
