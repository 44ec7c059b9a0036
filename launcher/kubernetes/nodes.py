"""A target on several nodes: one pod of the launcher for each node's part, joined by etcd.

TensorRT-LLM's disaggregated target is two parts: prefill with the frontend, and decode. An aggregated one is the same
pod on each node, frontend too: any of them answers, and each routes to the workers of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from launcher.findings import Finding, LauncherError
from launcher.kubernetes import parts, pod
from launcher.kubernetes.parts import Document
from launcher.kubernetes.subject import Subject
from launcher.plan.model import Role

ETCD_IMAGE = "quay.io/coreos/etcd:v3.5.21"
ETCD_PORT = 2379
NODES = 2
"""Pods of an aggregated target; `kubectl scale` makes them more."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one kind of pod runs."""

    name: str
    roles: tuple[Role, ...]
    """Empty for all of the target's."""
    replicas: int


def refusal(subject: Subject) -> Finding | None:
    """Why the target cannot be spread, or None."""
    if subject.target.workers.disaggregated and subject.target.engine.kind == "vllm":
        return Finding(
            code="nodes-vllm",
            what=f"{subject.target.name} hands KV from prefill to decode by NIXL",
            where="--kind nodes",
            why="the public recipe supports that in one pod only",
            fix="deploy.yaml on each node behind one Service, or an aggregated target; by hand --roles with "
            "--allow-multi-node-disagg",
        )
    return None


def split(subject: Subject) -> list[Part]:
    """The parts of a target."""
    if subject.target.workers.disaggregated:
        return [
            Part(f"{subject.name}-prefill", (Role.FRONTEND, Role.PREFILL), 1),
            Part(f"{subject.name}-decode", (Role.DECODE,), 1),
        ]
    return [Part(subject.name, (), NODES)]


def documents(subject: Subject) -> list[Document]:
    """etcd, a Deployment for each part, the API's Service, and who may reach the planes. Raises LauncherError."""
    problem = refusal(subject)
    if problem is not None:
        raise LauncherError(problem)
    return [
        *_etcd(subject),
        *(_deployment(subject, part) for part in split(subject)),
        pod.service(subject),
        _policy(subject),
    ]


def _deployment(subject: Subject, part: Part) -> Document:
    frontend = not part.roles or Role.FRONTEND in part.roles
    component = pod.SERVING if frontend else "part"
    labels = {**parts.labels(subject, component), "gpt-oss-launcher/part": part.name}
    if frontend:
        labels |= {parts.TYPE_LABEL: "frontend", parts.GRAPH_LABEL: subject.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": parts.metadata(subject, part.name, component),
        "spec": {
            "replicas": part.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": parts.startup_failures(subject) * parts.PROBE_PERIOD_S
            + pod.ROLLOUT_MARGIN_S,
            # A new pod needs the GPUs of the one that it replaces.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": {"gpt-oss-launcher/part": part.name}},
            "template": {"metadata": {"labels": labels}, "spec": _spec(subject, part)},
        },
    }


def _spec(subject: Subject, part: Part) -> Document:
    spec = pod.spec(subject)
    (container,) = spec["containers"]
    roles = ["--roles", ",".join(part.roles)] if part.roles else []
    endpoint = f"http://{subject.name}-etcd:{ETCD_PORT}"
    container["args"] += [*roles, "--discovery", "etcd", "--etcd-endpoints", endpoint]
    container["env"] += parts.env({"LAUNCHER_NODE": {"fieldRef": {"fieldPath": "metadata.name"}}})
    if part.roles and Role.FRONTEND not in part.roles:
        container["ports"] = [port for port in container["ports"] if port["name"] != "http"]
    if not subject.plan.simulated:
        gpus = sum(
            workers.count * workers.tensor_parallel
            for role, workers in subject.target.workers.items()
            if not part.roles or role in part.roles
        )
        container["resources"] = parts.worker_resources(subject, gpus)
    return spec


def _etcd(subject: Subject) -> list[Document]:
    """One member without a volume: what it holds lives no longer than the processes that wrote it."""
    name, component = f"{subject.name}-etcd", "etcd"
    labels = parts.labels(subject, component)
    url = f"http://{name}:{ETCD_PORT}"
    probe = {"path": "/health", "port": "client"}
    container: Document = {
        "name": "etcd",
        "image": ETCD_IMAGE,
        "command": ["etcd", "--data-dir", "/data", "--listen-client-urls", f"http://0.0.0.0:{ETCD_PORT}",
                    "--advertise-client-urls", url],
        "ports": [{"name": "client", "containerPort": ETCD_PORT}],
        "resources": parts.resources(1, 1),
        "readinessProbe": {"httpGet": probe, "periodSeconds": 5},
        "livenessProbe": {"httpGet": probe, "periodSeconds": 10, "failureThreshold": 6},
        "securityContext": parts.plain_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }  # fmt: skip
    deployment: Document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": parts.metadata(subject, name, component),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": parts.selector(subject, component)},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "enableServiceLinks": False,
                    "automountServiceAccountToken": False,
                    "securityContext": parts.pod_security(),
                    "containers": [container],
                    "volumes": [{"name": "data", "emptyDir": {}}],
                },
            },
        },
    }
    service: Document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": parts.metadata(subject, name, component),
        "spec": {
            "selector": parts.selector(subject, component),
            "ports": [{"name": "client", "port": ETCD_PORT, "targetPort": "client"}],
        },
    }
    return [deployment, service]


def _policy(subject: Subject) -> Document:
    """The planes and etcd ask for no password: only the deployment's own pods reach them, everyone the API."""
    plan = subject.plan
    own = {"podSelector": {"matchLabels": {parts.INSTANCE_LABEL: subject.name}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": parts.metadata(subject, subject.name, "network"),
        "spec": {
            "podSelector": {"matchLabels": {parts.INSTANCE_LABEL: subject.name}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [own]},
                {"ports": [{"port": plan.http_port}, {"port": plan.admin_port}]},
            ],
        },
    }
