"""Pieces that several manifests share: labels, placement, resources, security, probes, volumes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.kubernetes.subject import MODEL_CACHE, Nodes, Subject
from launcher.plan.deadlines import KILL_MARGIN_S

Document = dict[str, Any]

FRONTEND_CPUS = 8
"""Cores for the frontend: HTTP, tokenizer and router are CPU-bound (the public recipe's request)."""
FRONTEND_GIB = 16
"""RAM of a frontend that has a pod of its own, GiB (the public recipe's request)."""
CPUS_PER_GPU = 8
"""Cores for a worker: engine core, API process and sampling of one GPU. Our choice: an HGX node has at least
112 and a GB200 tray 144, so that the benchmark's pod fits beside a whole node's deployment."""
GIB_PER_GPU = 64
"""RAM for each GPU where the target states none: one pass of the 61 GiB checkpoint through host memory."""
SIMULATED_GIB = 1
"""RAM of a process without a model, GiB."""
USER = 1000
"""The unprivileged user of the runtime images, and the group that owns the model cache (as the operator's default)."""
PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Node label of NVIDIA's GPU feature discovery."""
CLIQUE_LABEL = "nvidia.com/gpu.clique"
"""Node label of the NVLink domain that a GB200 tray belongs to."""
GRAPH_LABEL = "nvidia.com/dynamo-graph-deployment-name"
TYPE_LABEL = "nvidia.com/dynamo-component-type"
"""Labels that the Dynamo operator puts on its pods; the benchmark finds a frontend by them in every form."""
INSTANCE_LABEL = "app.kubernetes.io/instance"
COMPONENT_LABEL = "app.kubernetes.io/component"

STARTUP_MARGIN_S = 60.0
"""Seconds that the kubelet waits longer than the launcher, which explains itself before it gives up."""
PROBE_PERIOD_S = 10


def labels(subject: Subject, component: str) -> dict[str, str]:
    """Labels of a rendered object."""
    return {
        "app.kubernetes.io/name": "gpt-oss-launcher",
        INSTANCE_LABEL: subject.name,
        COMPONENT_LABEL: component,
    }


def selector(subject: Subject, component: str) -> dict[str, str]:
    """The labels that tell a deployment's pods from every other pod of the namespace."""
    return {INSTANCE_LABEL: subject.name, COMPONENT_LABEL: component}


def metadata(subject: Subject, name: str, component: str) -> Document:
    """Name, namespace where one was chosen, labels."""
    space = {"namespace": subject.options.namespace} if subject.options.namespace else {}
    return {"name": name, **space, "labels": labels(subject, component)}


def placement(subject: Subject, nodes: Nodes | None, affinity: Document | None = None) -> Document:
    """Where a pod may run: GPU product, CPU architecture, taints, and what the target adds for a cluster.

    Without `nodes` it needs no GPU, but may go where they are.
    """
    chosen = subject.target.pod
    both: Document = {}
    if nodes is not None and nodes.products:
        values = [f"NVIDIA-{product}" for product in nodes.products]
        expression = {"key": PRODUCT_LABEL, "operator": "In", "values": values}
        both["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        }
    both |= affinity or {}
    spec: Document = {}
    selected: Document = {}
    if nodes is not None:
        selected = ({"kubernetes.io/arch": nodes.arch} if nodes.arch else {}) | chosen.node_selector
    if selected:
        spec["nodeSelector"] = selected
    if both:
        spec["affinity"] = both
    return spec | tolerations(subject) | pull_secrets(subject)


def tolerations(subject: Subject) -> Document:
    """The taint of GPU nodes, whatever its value, and the target's own."""
    found = [item.model_dump(exclude_none=True) for item in subject.target.pod.tolerations]
    if not subject.plan.simulated:
        found.insert(0, {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})
    return {"tolerations": found} if found else {}


def pull_secrets(subject: Subject) -> Document:
    names = subject.target.pod.image_pull_secrets
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def worker_resources(subject: Subject, gpus: int) -> Document:
    """Requests of so many GPUs' worth of workers."""
    target = subject.target
    memory = target.hardware.memory_gib * gpus // max(1, subject.gpus) or GIB_PER_GPU * gpus
    return resources(CPUS_PER_GPU * gpus, memory, gpus)


def resources(cpus: int, memory_gib: int, gpus: int = 0) -> Document:
    """Requests, and limits for GPUs only.

    A CPU limit throttles the engines' busy loops, and a memory limit would count the page cache of the weights and
    kill every process of the container at once.
    """
    requests: Document = {"cpu": str(cpus), "memory": f"{memory_gib}Gi"}
    if not gpus:
        return {"requests": requests}
    return {
        "requests": requests | {"nvidia.com/gpu": str(gpus)},
        # Kubernetes wants both alike for a device.
        "limits": {"nvidia.com/gpu": str(gpus)},
    }


def engine_security(subject: Subject) -> Document:
    """Root where the engine needs capabilities: Kubernetes gives added ones to no other user.

    DAC_OVERRIDE lets that root write the cache, which belongs to the group of the download job's user. No seccomp
    profile: the container runtimes' default one refuses the memory-placement calls of NCCL and the engines.
    """
    needed = subject.target.hardware.capabilities
    if not subject.plan.simulated and needed:
        added = sorted({*needed, "DAC_OVERRIDE"})
        return {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": added},
        }
    return unprivileged()


def unprivileged() -> Document:
    """The images' own user, and nothing more than it may do."""
    return {
        "runAsUser": USER,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def plain_security() -> Document:
    """For what runs no engine: also a read-only root, and the default seccomp profile."""
    return unprivileged() | {"readOnlyRootFilesystem": True, "seccompProfile": {"type": "RuntimeDefault"}}


def pod_security() -> Document:
    """Volumes belong to the images' group, without walking through a cache that already does."""
    return {"fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"}


def probe(
    path: str, port: str, *, failures: int, period_s: int = PROBE_PERIOD_S, timeout_s: int = 5
) -> Document:
    """An HTTP probe by the name of its port."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }


def startup_failures(subject: Subject) -> int:
    """Failed startup probes that the plan's start deadline allows."""
    return math.ceil((subject.plan.deadlines.start_s + STARTUP_MARGIN_S) / PROBE_PERIOD_S)


def grace_seconds(subject: Subject) -> int:
    """Time between SIGTERM and SIGKILL: the target's, or more where its drain schedule does not fit in it."""
    deadlines = subject.plan.deadlines
    return math.ceil(max(deadlines.grace_s, deadlines.total_s + KILL_MARGIN_S))


def token(subject: Subject) -> list[Document]:
    """The environment from the token's secret, which may be missing."""
    return [{"secretRef": {"name": subject.options.secret, "optional": True}}]


def env(values: dict[str, Any]) -> list[Document]:
    """Variables by name; a mapping is a `valueFrom`."""
    return [
        {"name": name, "valueFrom": value} if isinstance(value, dict) else {"name": name, "value": value}
        for name, value in values.items()
    ]


def home() -> dict[str, str]:
    """HOME on the scratch volume: Dynamo's frontend keeps model cards in it, and the root may be read-only."""
    return {"HOME": "/tmp"}


def cache_mount() -> Document:
    return {"name": "model-cache", "mountPath": MODEL_CACHE}


def cache_volume(subject: Subject) -> Document:
    return {"name": "model-cache", "persistentVolumeClaim": {"claimName": subject.options.claim}}


def scratch_mount() -> Document:
    return {"name": "tmp", "mountPath": "/tmp"}


def scratch_volume() -> Document:
    """Survives a restart of the container, so that an incident file can be read afterwards."""
    return {"name": "tmp", "emptyDir": {}}


def near(matches: Mapping[str, Sequence[str]], topology: str) -> Document:
    """A pod affinity term: beside pods that have one of these values for each label."""
    expressions = [{"key": key, "operator": "In", "values": list(values)} for key, values in matches.items()]
    return {"labelSelector": {"matchExpressions": expressions}, "topologyKey": topology}
