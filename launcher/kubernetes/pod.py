"""The whole deployment in one pod, with the launcher as PID 1; and the same pod under a Deployment."""

from __future__ import annotations

from launcher.kubernetes import parts
from launcher.kubernetes.parts import Document
from launcher.kubernetes.subject import MODEL_CACHE, Subject

SERVING = "serving"
ROLLOUT_MARGIN_S = 600
"""Seconds for scheduling and pulling an image of some 20 GB, beyond the start itself."""


def documents(subject: Subject) -> list[Document]:
    """Pod, Service, PodDisruptionBudget."""
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": parts.metadata(subject, subject.name, SERVING) | {"labels": pod_labels(subject)},
        # A launcher that gave up (exit 4) starts again in place, on GPUs that it has already got.
        "spec": {"restartPolicy": "Always", **spec(subject)},
    }
    return [pod, service(subject), budget(subject)]


def rolling(subject: Subject) -> list[Document]:
    """Deployment, Service, PodDisruptionBudget: a changed manifest replaces the pod once the new one is ready."""
    deployment: Document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": parts.metadata(subject, subject.name, SERVING),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": parts.startup_failures(subject) * parts.PROBE_PERIOD_S
            + ROLLOUT_MARGIN_S,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": parts.selector(subject, SERVING)},
            "template": {"metadata": {"labels": pod_labels(subject)}, "spec": spec(subject)},
        },
    }
    return [deployment, service(subject), budget(subject)]


def pod_labels(subject: Subject) -> dict[str, str]:
    """Ours, and those of the operator's frontends: this pod has a frontend, and the benchmark looks for one."""
    return {
        **parts.labels(subject, SERVING),
        parts.TYPE_LABEL: "frontend",
        parts.GRAPH_LABEL: subject.name,
    }


def service(subject: Subject) -> Document:
    """The API under the deployment's name. The admin port stays out: it is for the kubelet and Prometheus."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": parts.metadata(subject, subject.name, SERVING),
        "spec": {
            "selector": parts.selector(subject, SERVING),
            "ports": [{"name": "http", "port": subject.plan.http_port, "targetPort": "http"}],
        },
    }


def budget(subject: Subject) -> Document:
    """A node drain waits for a person instead of ending a deployment; one that serves nothing may go."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": parts.metadata(subject, subject.name, SERVING),
        "spec": {
            "minAvailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": parts.selector(subject, SERVING)},
        },
    }


def spec(subject: Subject) -> Document:
    """The pod of a launcher that runs the whole target."""
    hardware, simulated = subject.target.hardware, subject.plan.simulated
    volumes = [parts.scratch_volume()]
    if hardware.shm_gib and not simulated:
        shm = {"medium": "Memory", "sizeLimit": f"{hardware.shm_gib}Gi"}
        volumes.append({"name": "shm", "emptyDir": shm})
    if not simulated:
        volumes.append(parts.cache_volume(subject))
    made: Document = {
        "terminationGracePeriodSeconds": parts.grace_seconds(subject),
        # Variables of a Service named launcher would look like settings, and nothing here reads any.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": parts.pod_security(),
    }
    if hardware.host_ipc and not simulated:
        made["hostIPC"] = True
    return (
        made
        | parts.placement(subject, subject.nodes)
        | {"containers": [_container(subject)], "volumes": volumes}
    )


def _container(subject: Subject) -> Document:
    plan, hardware = subject.plan, subject.target.hardware
    values = parts.home() | {"LAUNCHER_ADMIN_HOST": subject.admin_host}
    mounts = [parts.scratch_mount()]
    if not plan.simulated:
        values = {"HF_HOME": MODEL_CACHE} | values
        if hardware.shm_gib:
            mounts.append({"name": "shm", "mountPath": "/dev/shm"})
        mounts.append(parts.cache_mount())
    container: Document = {
        "name": "main",
        "image": subject.image,
        "args": ["serve", "--target", subject.target.name, *subject.passed],
        "ports": [
            {"name": "http", "containerPort": plan.http_port},
            {"name": "admin", "containerPort": plan.admin_port},
        ],
        "env": parts.env(values),
    }
    if not plan.simulated:
        container["envFrom"] = parts.token(subject)
    return container | {
        "resources": _resources(subject),
        "startupProbe": parts.probe("/startupz", "admin", failures=parts.startup_failures(subject)),
        # A minute without an answer: the launcher itself hangs. What it runs is its own to restart.
        "livenessProbe": parts.probe("/livez", "admin", failures=6),
        # At the first 503, so that no client is sent where nothing answers.
        "readinessProbe": parts.probe("/readyz", "admin", failures=1, period_s=5, timeout_s=3),
        "securityContext": parts.plain_security() if plan.simulated else parts.engine_security(subject),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _resources(subject: Subject) -> Document:
    if subject.plan.simulated:
        return parts.resources(2, parts.SIMULATED_GIB * len(subject.plan.processes))
    gpus, memory = subject.gpus, subject.target.hardware.memory_gib
    if not memory:
        memory = parts.GIB_PER_GPU * gpus + subject.target.hardware.shm_gib
    return parts.resources(parts.FRONTEND_CPUS + parts.CPUS_PER_GPU * gpus, memory, gpus)
