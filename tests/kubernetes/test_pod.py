"""The one-pod form says what the public recipes and the plan say, for every target."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes import manifests
from tests.kubernetes.manifests import TARGETS, Document, documents

REAL = [name for name in TARGETS if name != "sim"]

# GPUs, memory GiB, /dev/shm GiB, capabilities, host IPC, node products, architecture: recipes.md, and for the
# TensorRT-LLM targets, whose recipe states no memory, 64 GiB a GPU and the shared memory on top.
HARDWARE: dict[str, tuple[int, int, int, list[str], bool, list[str], str]] = {
    "b200-agg": (8, 1600, 64, ["IPC_LOCK", "SYS_PTRACE"], False, ["NVIDIA-B200"], "amd64"),
    "b200-disagg": (8, 1200, 64, ["IPC_LOCK", "SYS_PTRACE"], True, ["NVIDIA-B200"], "amd64"),
    "h200-agg": (8, 1600, 64, ["IPC_LOCK", "SYS_PTRACE"], False, ["NVIDIA-H200"], "amd64"),
    "h200-disagg": (8, 1200, 64, ["IPC_LOCK", "SYS_PTRACE"], True, ["NVIDIA-H200"], "amd64"),
    "h200-1gpu-agg": (1, 200, 64, ["IPC_LOCK", "SYS_PTRACE"], False, ["NVIDIA-H200"], "amd64"),
    "h200-1gpu-disagg": (1, 200, 64, ["IPC_LOCK", "SYS_PTRACE"], True, ["NVIDIA-H200"], "amd64"),
    "gb200-trtllm-agg": (4, 336, 80, [], False, ["NVIDIA-GB200"], "arm64"),
    # Five GPUs: no GB200 node has them.
    "gb200-trtllm-disagg": (5, 400, 80, [], False, ["NVIDIA-B200"], "amd64"),
}


def pod(name: str) -> Document:
    """A target's Pod."""
    return manifests.kind(documents(name, "deploy.yaml"), "Pod")


def main(document: Document) -> Document:
    """Its container."""
    _, _, spec = next(manifests.pod_specs(document))
    (container,) = spec["containers"]
    found: Document = container
    return found


def variables(container: Document) -> dict[str, Any]:
    """A container's environment."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", [])}


def test_every_real_target_is_in_the_table() -> None:
    assert sorted(HARDWARE) == sorted(REAL)


@pytest.mark.parametrize("name", REAL)
def test_the_hardware_is_the_recipes(name: str) -> None:
    gpus, memory, shm, capabilities, host_ipc, products, arch = HARDWARE[name]
    document = pod(name)
    spec, container = document["spec"], main(document)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": str(gpus)}
    assert container["resources"]["requests"]["nvidia.com/gpu"] == str(gpus)
    assert container["resources"]["requests"]["memory"] == f"{memory}Gi"
    assert int(container["resources"]["requests"]["cpu"]) == 8 + 8 * gpus
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{shm}Gi"}
    assert volumes[mounts["/model-cache"]]["persistentVolumeClaim"] == {"claimName": "model-cache"}
    assert set(capabilities) <= set(container["securityContext"]["capabilities"].get("add", []))
    assert spec.get("hostIPC", False) is host_ipc
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": products}
    ]
    assert spec["nodeSelector"]["kubernetes.io/arch"] == arch
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]


@pytest.mark.parametrize("name", TARGETS)
def test_the_deadlines_are_the_plans(name: str) -> None:
    plan = manifests.wanted(name).one_pod().plan
    document = pod(name)
    container, grace = main(document), document["spec"]["terminationGracePeriodSeconds"]
    assert grace >= plan.deadlines.grace_s
    assert grace >= plan.deadlines.total_s + 3
    startup = container["startupProbe"]
    budget = startup["periodSeconds"] * startup["failureThreshold"]
    assert plan.deadlines.start_s < budget <= plan.deadlines.start_s + 120
    asked = {
        probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert asked == {
        "startupProbe": {"path": "/startupz", "port": "admin"},
        "livenessProbe": {"path": "/livez", "port": "admin"},
        "readinessProbe": {"path": "/readyz", "port": "admin"},
    }
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": plan.http_port, "admin": plan.admin_port}
    assert variables(container)["LAUNCHER_ADMIN_HOST"] == "0.0.0.0"


@pytest.mark.parametrize("name", TARGETS)
def test_service_budget_monitor_and_benchmark_find_the_pod(name: str) -> None:
    for file, form in (("deploy.yaml", "Pod"), ("deployment.yaml", "Deployment")):
        found = documents(name, file)
        _, metadata, _ = next(manifests.pod_specs(manifests.kind(found, form)))
        labels = metadata["labels"].items()
        service, budget = manifests.kind(found, "Service"), manifests.kind(found, "PodDisruptionBudget")
        monitor = manifests.kind(documents(name, "monitor.yaml"), "PodMonitor")
        assert service["spec"]["selector"].items() <= labels
        assert budget["spec"]["selector"]["matchLabels"].items() <= labels
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels
        (port,) = service["spec"]["ports"]
        assert (port["name"], port["port"]) == ("http", 8000)
        job = manifests.kind(documents(name, "bench.yaml"), "Job")
        spec = job["spec"]["template"]["spec"]
        (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        for expression in term["labelSelector"]["matchExpressions"]:
            assert metadata["labels"][expression["key"]] in expression["values"]
        url = spec["containers"][0]["args"][-1]
        assert url == f"http://{service['metadata']['name']}:{port['port']}"
        # None of them matches the jobs' own pods.
        assert (
            not service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
        )


@pytest.mark.parametrize("name", REAL)
def test_the_token_comes_from_the_secret(name: str) -> None:
    for file in ("deploy.yaml", "deployment.yaml", "model-cache.yaml", "bench.yaml", "dgd.yaml"):
        if file not in manifests.rendered(name):
            continue
        for document in documents(name, file):
            for _, _, spec in manifests.pod_specs(document):
                (container,) = spec["containers"]
                assert container["envFrom"] == [{"secretRef": {"name": "hf-token-secret", "optional": True}}]
                assert variables(container)["HF_HOME"] == "/model-cache"


@pytest.mark.parametrize("name", TARGETS)
def test_no_pod_may_do_more_than_it_needs(name: str) -> None:
    for file in manifests.rendered(name):
        for document in documents(name, file):
            for _, _, spec in manifests.pod_specs(document):
                assert spec["enableServiceLinks"] is False
                security = spec["containers"][0]["securityContext"]
                assert security["allowPrivilegeEscalation"] is False
                assert security["capabilities"]["drop"] == ["ALL"]
                assert "privileged" not in security
                # Root only where capabilities are needed: others do not get them from Kubernetes.
                assert (security["runAsUser"] == 0) is bool(security["capabilities"].get("add"))


def test_a_simulated_pod_needs_nothing() -> None:
    document = pod("sim")
    spec, container = document["spec"], main(document)
    assert "nvidia.com/gpu" not in container["resources"]["requests"]
    assert "affinity" not in spec
    assert "nodeSelector" not in spec
    assert "tolerations" not in spec
    assert [volume["name"] for volume in spec["volumes"]] == ["tmp"]
    # An image that is built anyway.
    assert container["image"] == main(pod("h200-agg"))["image"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert sorted(manifests.rendered("sim")) == [
        "bench.yaml",
        "deploy.yaml",
        "deployment.yaml",
        "monitor.yaml",
        "nodes.yaml",
    ]


def test_the_deployment_has_the_same_pod_and_rolls_without_a_gap() -> None:
    deployment = manifests.kind(documents("h200-disagg", "deployment.yaml"), "Deployment")
    spec = pod("h200-disagg")["spec"]
    assert spec.pop("restartPolicy") == "Always"
    assert deployment["spec"]["template"]["spec"] == spec
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    # A rollout that is still loading is not reported as stuck.
    assert (
        deployment["spec"]["progressDeadlineSeconds"]
        > manifests.wanted("h200-disagg").one_pod().plan.deadlines.start_s
    )


@pytest.mark.parametrize("name", REAL)
def test_volume_and_download(name: str) -> None:
    claim, job = documents(name, "model-cache.yaml")
    assert claim["metadata"]["name"] == "model-cache"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert "storageClassName" not in claim["spec"]
    assert job["metadata"]["name"] == f"{name}-model-download"
    container = main(job)
    assert container["args"] == ["download", "--target", name]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/model-cache", "/tmp"}
    # A wrong token does not become right by trying again.
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 3]}}


def test_the_claim_is_the_same_for_every_target() -> None:
    first, *rest = [documents(name, "model-cache.yaml")[0] for name in REAL]
    assert all(claim == first for claim in rest)


def test_an_arm64_target_downloads_with_its_own_image() -> None:
    """Its cluster may have GPU nodes only, and its image no other architecture."""
    spec = documents("gb200-trtllm-agg", "model-cache.yaml")[1]["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_the_monitor_scrapes_the_admin_port() -> None:
    monitor = manifests.kind(documents("h200-disagg", "monitor.yaml"), "PodMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "admin", "path": "/metrics", "interval": "15s", "scrapeTimeout": "10s"}
    assert endpoint["port"] in {port["name"] for port in main(pod("h200-disagg"))["ports"]}
