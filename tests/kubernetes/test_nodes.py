"""The form for several nodes: each part's launcher gets the flags that make it join, and its own share of GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.findings import LauncherError
from launcher.kubernetes import nodes
from launcher.kubernetes.render import render
from tests.kubernetes import manifests, validators

SPREAD = [name for name in manifests.TARGETS if "nodes.yaml" in manifests.rendered(name)]


def containers(name: str) -> dict[str, Any]:
    """The launcher's container of each part, by the Deployment's name."""
    return {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]["containers"][0]
        for document in manifests.documents(name, "nodes.yaml")
        if document["kind"] == "Deployment" and not document["metadata"]["name"].endswith("-etcd")
    }


def flag(container: Any, name: str) -> str:
    words: list[str] = container["args"]
    return words[words.index(name) + 1]


def test_the_five_gpus_go_on_two_trays_of_four() -> None:
    parts = containers("gb200-trtllm-disagg")
    assert {name: flag(each, "--roles") for name, each in parts.items()} == {
        "gb200-trtllm-disagg-prefill": "frontend,prefill",
        "gb200-trtllm-disagg-decode": "decode",
    }
    gpus = [each["resources"]["limits"]["nvidia.com/gpu"] for each in parts.values()]
    assert gpus == ["1", "4"]
    assert [port["name"] for port in parts["gb200-trtllm-disagg-decode"]["ports"]] == ["admin"]


def test_an_aggregated_target_is_the_same_pod_on_each_node() -> None:
    (container,) = containers("h200-agg").values()
    assert "--roles" not in container["args"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    deployments = [
        each for each in manifests.documents("h200-agg", "nodes.yaml") if each["kind"] == "Deployment"
    ]
    assert [each["spec"]["replicas"] for each in deployments] == [1, nodes.NODES]


@pytest.mark.parametrize("name", SPREAD)
def test_every_part_joins_by_the_same_etcd(name: str) -> None:
    for container in containers(name).values():
        assert flag(container, "--discovery") == "etcd"
        assert flag(container, "--etcd-endpoints") == f"http://{name}-etcd:2379"
        assert {
            "name": "LAUNCHER_NODE",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
        } in container["env"]


@pytest.mark.parametrize("name", SPREAD)
def test_only_its_own_pods_reach_the_planes(name: str) -> None:
    found = manifests.documents(name, "nodes.yaml")
    assert validators.api_errors(found) == []
    policy = manifests.kind(found, "NetworkPolicy")
    inside, outside = policy["spec"]["ingress"]
    assert "ports" not in inside
    assert [each["port"] for each in outside["ports"]] == [8000, 9000]


def test_vllms_disaggregated_targets_have_none() -> None:
    assert "h200-disagg" not in SPREAD
    with pytest.raises(LauncherError) as caught:
        render(manifests.wanted("h200-disagg"), "nodes")
    assert caught.value.findings[0].code == "nodes-vllm"
