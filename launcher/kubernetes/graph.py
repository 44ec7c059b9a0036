"""The plan as a DynamoGraphDeployment: each role a component of the Dynamo operator, without the launcher.

Command lines and environment are the plan's, but for what makes sense in one pod only (`DROPPED`, `REPLACED`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from launcher.findings import Finding, LauncherError
from launcher.kubernetes import parts
from launcher.kubernetes.parts import Document
from launcher.kubernetes.subject import MODEL_CACHE, RUN_ROOT, Subject
from launcher.plan.model import Process, Role

SYSTEM_PORT = 9090
"""Where the operator and its probes expect a worker's status server."""
HTTP_PORT = 8000
"""Where the operator's Service expects the frontend."""
POD_IP: Document = {"fieldRef": {"fieldPath": "status.podIP"}}
DROPPED = {
    "DYN_NAMESPACE": "the operator names it after the deployment",
    "DYN_DISCOVERY_BACKEND": "the operator sets its own, Kubernetes",
    "DYN_FILE_KV": "files are a discovery for one machine",
    "DYN_ZMQ_BROKER_URL": "the broker's sockets are files of one pod; without it, events go from pod to pod",
    "DYN_SYSTEM_HOST": "the kubelet probes from outside the pod",
    "DYN_TCP_RPC_HOST": "the frontend is in another pod",
    "DYN_TCP_RESPONSE_STREAM_HOST": "the workers are in other pods",
    "UCX_NET_DEVICES": "KV goes to another pod",
    "CUDA_VISIBLE_DEVICES": "the device plugin gives each pod its GPUs",
}
"""Variables of the one-pod plan that a pod per process must not have, and why."""
REPLACED: dict[str, tuple[str | Document, str]] = {
    "DYN_SYSTEM_PORT": (str(SYSTEM_PORT), f"the operator's port {SYSTEM_PORT}: each pod has its own address"),
    "VLLM_HOST_IP": (POD_IP, "the pod's address"),
    "VLLM_NIXL_SIDE_CHANNEL_HOST": (POD_IP, "the pod's address, where the other role asks for KV"),
}
"""Variables that get another value, and why."""
TYPES = {Role.FRONTEND: "frontend", Role.PREFILL: "prefill", Role.DECODE: "decode", Role.AGGREGATED: "worker"}
RELEASE_TAG = re.compile(r":\d+\.\d+\.\d+$")


def refusal(subject: Subject) -> Finding | None:
    """Why the target cannot be a graph, or None."""
    target = subject.target
    if subject.plan.simulated:
        return Finding(
            code="graph-simulated",
            what=f"{target.name} runs {target.engine.kind}, which needs no operator and is in no runtime image",
            where="--kind dgd",
            fix="--kind pod",
        )
    if target.hardware.shared_gpu:
        return Finding(
            code="graph-shared-gpu",
            what=f"{target.name} has several workers on one GPU",
            where="hardware.shared_gpu",
            why="a graph gives each worker a pod, and Kubernetes gives a GPU to one pod",
            fix="--kind pod",
        )
    if subject.plan.http_port != HTTP_PORT:
        return Finding(
            code="graph-port",
            what=f"network.http_port is {subject.plan.http_port}",
            where="--http-port",
            why=f"the operator's Service goes to port {HTTP_PORT}",
            fix=f"--http-port {HTTP_PORT}",
        )
    return None


def documents(subject: Subject) -> list[Document]:
    """The engine's files as a ConfigMap where it has any, and the graph. Raises LauncherError, see `refusal`."""
    problem = refusal(subject)
    if problem is not None:
        raise LauncherError(problem)
    files = engine_files(subject)
    spec: Document = {
        "backendFramework": subject.target.engine.kind,
        "components": [_component(subject, process, count) for process, count in templates(subject)],
    }
    graph: Document = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": parts.metadata(subject, subject.name, "graph"),
        "spec": spec,
    }
    if not files:
        return [graph]
    config: Document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": parts.metadata(subject, f"{subject.name}-engine", "graph"),
        "data": files,
    }
    return [config, graph]


def templates(subject: Subject) -> Iterator[tuple[Process, int]]:
    """The first process of each role, which stands for all of them, and how many there are.

    Helpers are not among them: they are the plumbing of one pod.
    """
    for role in TYPES:
        processes = [process for process in subject.plan.processes if process.role is role]
        if processes:
            yield processes[0], len(processes)


def engine_files(subject: Subject) -> dict[str, str]:
    """File name to text of the files that the plan writes into `RUN_ROOT/TARGET/engine`."""
    return {
        path.rpartition("/")[2]: text
        for process, _ in templates(subject)
        for path, text in process.files.items()
    }


def differences(subject: Subject) -> list[str]:
    """What differs from the plan in this graph, one line for each variable."""
    used = {name for process, _ in templates(subject) for name in process.env}
    lines = [f"{name}: dropped, {why}" for name, why in DROPPED.items() if name in used]
    return lines + [f"{name}: {why}" for name, (_, why) in REPLACED.items() if name in used]


def environment(process: Process) -> dict[str, Any]:
    """The process's environment as its component has it."""
    return {
        name: REPLACED[name][0] if name in REPLACED else value
        for name, value in process.env.items()
        if name not in DROPPED
    }


def image(subject: Subject) -> str:
    """A graph runs the engine's own image: nothing of the launcher is in it."""
    return subject.options.runtime_image or subject.target.validated.image


def together(subject: Subject) -> bool:
    """Whether one node holds all the workers."""
    return subject.gpus <= subject.nodes.gpus


def _component(subject: Subject, process: Process, count: int) -> Document:
    target = subject.target
    component: Document = {"name": process.role.value, "type": TYPES[process.role], "replicas": count}
    if not RELEASE_TAG.search(image(subject)):
        # The operator reads Dynamo's release from the tag, and asks for it where the tag is none.
        component["runtimeVersionOverride"] = target.validated.dynamo
    if process.role is not Role.FRONTEND and target.hardware.shm_gib:
        component["sharedMemorySize"] = f"{target.hardware.shm_gib}Gi"
    labels = parts.labels(subject, "frontend" if process.role is Role.FRONTEND else "worker")
    # Its own labels are the operator's to give.
    component["podTemplate"] = {"metadata": {"labels": labels}, "spec": _spec(subject, process)}
    return component


def _spec(subject: Subject, process: Process) -> Document:
    target = subject.target
    spec: Document = {
        "terminationGracePeriodSeconds": parts.grace_seconds(subject),
        "enableServiceLinks": False,
        "securityContext": parts.pod_security(),
    }
    if process.role is Role.FRONTEND:
        # Beside the workers where there is room, else on any node: it needs no GPU.
        spec |= parts.placement(subject, None, _beside(subject, required=False))
    else:
        if target.hardware.host_ipc:
            spec["hostIPC"] = True
        affinity = _beside(subject, required=together(subject)) if target.workers.disaggregated else None
        spec |= parts.placement(subject, subject.nodes, affinity)
    spec["containers"] = [_main(subject, process)]
    spec["volumes"] = [parts.cache_volume(subject)]
    if process.files:
        spec["volumes"].append({"name": "engine", "configMap": {"name": f"{subject.name}-engine"}})
    return spec


def _beside(subject: Subject, *, required: bool) -> Document:
    """Near the graph's workers: on their node, or in their NVLink domain where no node holds them all.

    The first worker may go anywhere: Kubernetes lets a pod pass that is the only one to match its own rule.
    """
    workers = {parts.INSTANCE_LABEL: [subject.name], parts.COMPONENT_LABEL: ["worker"]}
    term = parts.near(workers, "kubernetes.io/hostname" if together(subject) else parts.CLIQUE_LABEL)
    if required:
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    weighted = {"weight": 100, "podAffinityTerm": term}
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


def _own_socket(argument: str, subject: Subject) -> str:
    """A unix socket's address as a pod can bind it: the run's folder is there, if at all, to be read."""
    return argument.replace(f"ipc://{RUN_ROOT}/{subject.target.name}/", "ipc:///tmp/")


def _main(subject: Subject, process: Process) -> Document:
    frontend = process.role is Role.FRONTEND
    mounts = [parts.cache_mount()]
    if process.files:
        mounts.append(
            {"name": "engine", "mountPath": f"{RUN_ROOT}/{subject.target.name}/engine", "readOnly": True}
        )
    port = "http" if frontend else "system"
    ports = [{"name": port, "containerPort": HTTP_PORT if frontend else SYSTEM_PORT}]
    if "nixl" in process.ports:
        ports.append({"name": "nixl-side", "containerPort": process.ports["nixl"]})
    requests = (
        parts.resources(parts.FRONTEND_CPUS, parts.FRONTEND_GIB)
        if frontend
        else parts.worker_resources(subject, len(process.gpus))
    )
    return {
        "name": "main",
        "image": image(subject),
        "command": list(process.argv[:3]),
        "args": [_own_socket(argument, subject) for argument in process.argv[3:]],
        "ports": ports,
        "env": parts.env({"HF_HOME": MODEL_CACHE} | environment(process)),
        "envFrom": parts.token(subject),
        "resources": requests,
        # The operator would restart a worker at its first slow answer.
        "startupProbe": parts.probe("/live", port, failures=parts.startup_failures(subject)),
        "livenessProbe": parts.probe("/live", port, failures=6),
        "readinessProbe": parts.probe("/health", port, failures=3),
        "securityContext": parts.unprivileged() if frontend else parts.engine_security(subject),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
