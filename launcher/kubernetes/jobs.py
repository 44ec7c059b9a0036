"""What runs once beside a deployment: the download of the models, the benchmark."""

from __future__ import annotations

from typing import Any

from launcher.kubernetes import parts
from launcher.kubernetes.parts import Document
from launcher.kubernetes.subject import MODEL_CACHE, Subject

DOWNLOAD = "model-download"
BENCHMARK = "benchmark"
DOWNLOAD_DEADLINE_S = 4 * 3600
"""65 GB at 5 MB/s; each retry goes on where the last one stopped."""
BENCHMARK_DEADLINE_S = 2 * 3600
"""The public recipe's cap."""
HOPELESS = [2, 3]
"""Exit codes that a retry cannot change: a wrong setting, a failed check (token, disk space)."""


def model_cache(subject: Subject) -> list[Document]:
    """The volume and the job that fills it."""
    return [claim(subject), download(subject)]


def both(subject: Subject) -> list[Document]:
    """All that runs beside a deployment; a simulated one has nothing to download."""
    return ([] if subject.plan.simulated else model_cache(subject)) + benchmark(subject)


def claim(subject: Subject) -> Document:
    """One volume for all pods of the namespace, on whichever node they run."""
    options = subject.options
    spec: Document = {"accessModes": ["ReadWriteMany"]}
    if options.storage_class is not None:
        spec["storageClassName"] = options.storage_class
    spec["resources"] = {"requests": {"storage": options.storage}}
    # Not labelled with the deployment's name: it outlives each deployment and serves them all.
    meta: Document = {"name": options.claim}
    if options.namespace:
        meta["namespace"] = options.namespace
    meta["labels"] = {"app.kubernetes.io/name": "gpt-oss-launcher", parts.COMPONENT_LABEL: "model-cache"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def download(subject: Subject) -> Document:
    """`launcher download`, resumed after a failure until it is complete."""
    spec = _job(
        subject,
        DOWNLOAD,
        args=["download", "--target", subject.target.name, *_changes(subject)],
        resources=parts.resources(2, 8),
    )
    arch = subject.target.hardware.arch
    if arch is not None:
        # The image of such a target need not exist for another architecture.
        spec["template"]["spec"] |= {"nodeSelector": {"kubernetes.io/arch": arch}} | parts.tolerations(
            subject
        )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": parts.metadata(subject, f"{subject.name}-{DOWNLOAD}", DOWNLOAD),
        "spec": {
            "backoffLimit": 6,
            "activeDeadlineSeconds": DOWNLOAD_DEADLINE_S,
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": HOPELESS}}]
            },
            **spec,
        },
    }


def benchmark(subject: Subject) -> list[Document]:
    """`launcher bench` on the frontend's own node, so that no network but the node's is measured."""
    url = subject.options.url or f"http://{subject.name}:{subject.plan.http_port}"
    spec = _job(
        subject,
        BENCHMARK,
        args=["bench", "--target", subject.target.name, *_changes(subject), "--url", url],
        resources=parts.resources(8, 32),
    )
    frontend = {parts.TYPE_LABEL: ["frontend"], parts.GRAPH_LABEL: [subject.name]}
    affinity = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [parts.near(frontend, "kubernetes.io/hostname")]
        }
    }
    spec["template"]["spec"] |= {"affinity": affinity} | parts.tolerations(subject)
    if not subject.plan.simulated:
        # What it writes beside itself outlives the pod.
        spec["template"]["spec"]["containers"][0]["workingDir"] = MODEL_CACHE
    job: Document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": parts.metadata(subject, f"{subject.name}-bench", BENCHMARK),
        # A second attempt would meet warm caches and measure something else.
        "spec": {"backoffLimit": 0, "activeDeadlineSeconds": BENCHMARK_DEADLINE_S, **spec},
    }
    return [job]


def _changes(subject: Subject) -> list[str]:
    """What was changed about the target, less what only the serving launcher takes."""
    flags = list(subject.passed)
    kept: list[str] = []
    for flag, value in zip(flags[::2], flags[1::2], strict=True):
        if flag in ("--set", "--engine"):
            kept += [flag, value]
    return kept


def _job(subject: Subject, component: str, args: list[str], resources: Document) -> dict[str, Any]:
    stored = not subject.plan.simulated
    container: Document = {
        "name": component,
        "image": subject.image,
        "args": args,
        "env": parts.env(({"HF_HOME": MODEL_CACHE} if stored else {}) | parts.home()),
    }
    if stored:
        container["envFrom"] = parts.token(subject)
    container |= {
        "resources": resources,
        "securityContext": parts.plain_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [parts.scratch_mount()] + ([parts.cache_mount()] if stored else []),
    }
    return {
        "template": {
            "metadata": {"labels": parts.labels(subject, component)},
            "spec": {
                "restartPolicy": "Never",
                "enableServiceLinks": False,
                "automountServiceAccountToken": False,
                "securityContext": parts.pod_security(),
                **parts.pull_secrets(subject),
                "containers": [container],
                "volumes": [parts.scratch_volume()] + ([parts.cache_volume(subject)] if stored else []),
            },
        }
    }
