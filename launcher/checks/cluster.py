"""Past one node: whether the discovery backend that the plan names can be reached, with the error it really gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.checks import etcd, neighbours, reach
from launcher.checks.base import Check, Group
from launcher.checks.etcd import short
from launcher.checks.plan.wiring import BACKEND
from launcher.findings import Exit, Finding
from launcher.machine import Machine
from launcher.plan.model import Plan
from launcher.target.resolve import Resolved

PODINFO = Path("/etc/podinfo")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RESOURCES = (
    ("discovery.k8s.io/v1", "endpointslices"),
    ("nvidia.com/v1alpha1", "dynamoworkermetadatas"),
)
"""What Dynamo's Kubernetes discovery reads (dynamo-runtime 1.6.1)."""


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
    if etcd.backend(plan) != "kubernetes":
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


def identity(
    resolved: Resolved,
    plan: Plan,
    machine: Machine,
    environ: Mapping[str, str],
    info: Path = PODINFO,
) -> Iterator[Finding]:
    """Kubernetes discovery knows pods, not processes: a pod has one identity and one DynamoWorkerMetadata, of its name.

    So of several workers in a pod only one would be found (Dynamo's own documentation; its container mode is one
    identity a container, not a process). Without POD_NAME and POD_UID, by the downward API or as files in /etc/podinfo,
    each process exits: "POD_NAME not available from file or environment" (seen with 1.3.1, 1.4.2 and 1.6.1).
    """
    if etcd.backend(plan) != "kubernetes" or not environ.get("KUBERNETES_SERVICE_HOST"):
        return
    missing = [
        name
        for name in ("POD_NAME", "POD_UID")
        if not environ.get(name) and not (info / name.lower()).exists()
    ]
    if missing:
        yield _kubernetes(
            "kubernetes-pod",
            f"{' and '.join(missing)} not set",
            "env of the container: valueFrom fieldRef metadata.name and metadata.uid",
        )
    if len(plan.workers) > 1:
        yield _kubernetes(
            "kubernetes-workers",
            f"{len(plan.workers)} workers in one pod, which has one identity in kubernetes discovery",
            "--discovery etcd, or one worker a pod (launcher render --kind dgd)",
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
        return short(str(json.loads(body)["message"]))
    except (ValueError, KeyError, TypeError):
        return short(body)


CHECKS: tuple[Check, ...] = (
    *etcd.CHECKS,
    *neighbours.CHECKS,
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
    Check(identity, ("kubernetes-pod", "kubernetes-workers")),
)

GROUP = Group("cluster", CHECKS, Exit.CHECK_FAILED)
