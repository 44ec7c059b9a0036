"""Prometheus: the launcher's figures and those of every process that it runs, from one port."""

from __future__ import annotations

from launcher.kubernetes import parts
from launcher.kubernetes.parts import Document
from launcher.kubernetes.pod import SERVING
from launcher.kubernetes.subject import Subject


def documents(subject: Subject) -> list[Document]:
    """A PodMonitor (Prometheus operator) for the pod and the Deployment; a graph's pods have the operator's own."""
    monitor: Document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": parts.metadata(subject, subject.name, SERVING),
        "spec": {
            "selector": {"matchLabels": parts.selector(subject, SERVING)},
            "podTargetLabels": [parts.INSTANCE_LABEL],
            "podMetricsEndpoints": [
                {"port": "admin", "path": "/metrics", "interval": "15s", "scrapeTimeout": "10s"}
            ],
        },
    }
    return [monitor]
