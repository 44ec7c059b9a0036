"""Which manifests exist, and the text of each. A new kind is a function and a line in KINDS."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from launcher.findings import Finding, LauncherError
from launcher.kubernetes import graph, jobs, monitor, nodes, parts, pod
from launcher.kubernetes.emit import COMMAND, emit
from launcher.kubernetes.parts import Document
from launcher.kubernetes.subject import Subject, Wanted


@dataclass(frozen=True, slots=True)
class Kind:
    """One manifest of a target."""

    file: str | None
    """Its name below `configs/deploy/TARGET/`; None where others hold the same."""
    help: str
    make: Callable[[Subject], list[Document]]
    notes: Callable[[Subject], list[str]]
    """What a reader should know before applying it."""
    planned: Literal["one pod", "spread"] = "one pod"
    """spread: the nodes need only hold one worker each."""


def _pod_notes(subject: Subject) -> list[str]:
    hardware = subject.target.hardware
    notes = []
    if subject.plan.simulated:
        notes.append("Simulated: no GPU, no model, answers are made up.")
    else:
        left_out = [product for product in hardware.gpu if product not in subject.nodes.products]
        where = " or ".join(subject.nodes.products)
        notes.append(f"One pod with {subject.gpus} GPUs of one {where} node; the launcher is PID 1.")
        if left_out:
            notes.append(
                f"Not for {', '.join(left_out)}: no such node has {subject.gpus} GPUs. See dgd.yaml for those."
            )
        notes.append(f"Wants the claim {subject.options.claim} filled first: model-cache.yaml.")
    deadlines = subject.plan.deadlines
    drain = ", ".join(f"{role} {seconds:g} s" for role, seconds in deadlines.drain_s.items())
    notes.append(
        f"Stop: {deadlines.pause_s:g} s pause, then at most {drain}; "
        f"killed {parts.grace_seconds(subject)} s after SIGTERM."
    )
    return notes


def _rolling_notes(subject: Subject) -> list[str]:
    own = f"{subject.gpus} more free GPUs" if subject.gpus else "room for a second pod"
    return [
        *_pod_notes(subject),
        f"Instead of deploy.yaml. An update needs {own} until the new pod is ready; without them use",
        "strategy Recreate, which serves nothing while the new pod loads.",
    ]


KV_BETWEEN_PODS = {
    "vllm": "A pod sees its own GPUs only, so KV goes from prefill to decode over RDMA or TCP, not over CUDA IPC. The "
    "public recipe calls prefill and decode in several pods unsupported; its form is deploy.yaml.",
    "trtllm": "The public recipe's form. KV goes from pod to pod by what UCX finds: RDMA or TCP, and NVLink between "
    "nodes only where the cluster gives both pods an IMEX channel (a ComputeDomain).",
}
"""What a pod for each role means for the transfer, by engine."""


def _graph_notes(subject: Subject) -> list[str]:
    target = subject.target
    image = graph.image(subject)
    notes = [
        f"For the Dynamo operator; image {image}, each worker a pod of its own. The launcher is not in it."
    ]
    if target.workers.disaggregated:
        if graph.together(subject):
            notes.append("Prefill and decode share one node, which must have all their GPUs free.")
        else:
            notes.append(
                f"A {subject.nodes.products[0]} node has {subject.nodes.gpus} GPUs, the workers take {subject.gpus}: "
                "they go on two nodes, of one NVLink domain where the cluster has it labelled."
            )
        notes.append(KV_BETWEEN_PODS[target.engine.kind])
    return [*notes, "Differs from the one-pod plan:", *(f"  {line}" for line in graph.differences(subject))]


def _nodes_notes(subject: Subject) -> list[str]:
    names = [part.name + (f" x{part.replicas}" if part.replicas > 1 else "") for part in nodes.split(subject)]
    simulated = ["Simulated: no GPU, no model, answers are made up."] if subject.plan.simulated else []
    return [
        *simulated,
        f"Instead of deploy.yaml: {', '.join(names)}, a launcher in each pod, joined by etcd (docs/multi-node.md).",
        "With an etcd of your own leave out the first two documents and change --etcd-endpoints.",
        "The NetworkPolicy matters: Dynamo's planes and this etcd ask for no password.",
    ]


def _cache_notes(subject: Subject) -> list[str]:
    model = subject.target.model
    names = [f"{model.id}@{model.revision[:12]}"]
    if model.draft is not None:
        names.append(f"{model.draft.id}@{model.draft.revision[:12]}")
    return [
        "Volume and download of " + " and ".join(names) + ".",
        "The storage class must offer ReadWriteMany; on a cluster of one node ReadWriteOnce would do.",
    ]


def _bench_notes(subject: Subject) -> list[str]:
    return [
        "Runs on the frontend's node. For a graph render it with --url "
        + f"http://{subject.name}-frontend:8000.",
        "One run for each fresh deployment: warm KV caches change the result.",
    ]


def _job_notes(subject: Subject) -> list[str]:
    cache = [] if subject.plan.simulated else _cache_notes(subject)
    return [*cache, "The benchmark waits for a frontend to be beside. " + _bench_notes(subject)[0]]


def _monitor_notes(subject: Subject) -> list[str]:
    return ["For the Prometheus operator; matches the pod of deploy.yaml and deployment.yaml."]


KINDS: dict[str, Kind] = {
    "pod": Kind(
        "deploy.yaml",
        "the deployment in one pod, its Service and disruption budget",
        pod.documents,
        _pod_notes,
    ),
    "deployment": Kind("deployment.yaml", "the same pod with rolling updates", pod.rolling, _rolling_notes),
    "dgd": Kind(
        "dgd.yaml", "a DynamoGraphDeployment for the operator", graph.documents, _graph_notes, "spread"
    ),
    "nodes": Kind(
        "nodes.yaml",
        "a launcher on each of several nodes, joined by etcd",
        nodes.documents,
        _nodes_notes,
        "spread",
    ),
    "cache": Kind(
        "model-cache.yaml",
        "the model volume and the job that fills it",
        jobs.model_cache,
        _cache_notes,
        "spread",
    ),
    "bench": Kind("bench.yaml", "the benchmark job", jobs.benchmark, _bench_notes, "spread"),
    "job": Kind(None, "cache and bench in one", jobs.both, _job_notes, "spread"),
    "monitor": Kind(
        "monitor.yaml", "a PodMonitor for Prometheus", monitor.documents, _monitor_notes, "spread"
    ),
}


def render(wanted: Wanted, name: str) -> str:
    """The manifest of that kind. Raises LauncherError where the target has none, saying why."""
    kind = KINDS[name]
    subject = wanted.one_pod() if kind.planned == "one pod" else wanted.spread()
    if name == "cache" and subject.plan.simulated:
        raise LauncherError(
            Finding(
                code="cache-simulated",
                what=f"{subject.target.name} downloads nothing: its model is built in",
                where="--kind cache",
                fix="--kind pod",
            )
        )
    documents = kind.make(subject)
    title = f"{subject.target.name}: {subject.target.title}"
    return emit(documents, [title, f"{COMMAND} {command(wanted, name)}", *kind.notes(subject)])


def render_all(wanted: Wanted) -> Iterator[tuple[str, str]]:
    """File name and text of each manifest that the target has."""
    for name, kind in KINDS.items():
        if kind.file is None:
            continue
        try:
            yield kind.file, render(wanted, name)
        except LauncherError as error:
            if not {finding.code for finding in error.findings} <= NOT_THIS_ONE:
                raise


NOT_THIS_ONE = {
    "graph-simulated",
    "graph-shared-gpu",
    "graph-port",
    "nodes-vllm",
    "cache-simulated",
    "node-too-small",
}
"""Reasons for which a target lacks a kind, as opposed to faults."""


def command(wanted: Wanted, name: str) -> str:
    """The command that makes the manifest again."""
    words = ["launcher", "render", "--target", wanted.resolved.target.name, "--kind", name]
    words += [*wanted.passed, *wanted.cluster]
    if wanted.machine is not None:
        words += ["--machine", wanted.machine]
    return shlex.join([*words, *wanted.options.given()])
