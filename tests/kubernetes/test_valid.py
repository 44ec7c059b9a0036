"""Every manifest is one that a cluster takes, as far as that can be known without a cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes import manifests, validators
from tests.kubernetes.manifests import TARGETS, Document, documents
from tests.kubernetes.validators import KUBERNETES

FILES = manifests.files()
GRAPHS = [name for name, file in FILES if file == "dgd.yaml"]


@pytest.mark.parametrize(("name", "file"), FILES)
def test_three_kubernetes_releases_take_it(name: str, file: str) -> None:
    for document in documents(name, file):
        if document["kind"] == "PodMonitor":
            continue  # No schema of it is installed; test_pod.py holds it to what the operator documents.
        for release in KUBERNETES:
            assert validators.schema_errors(document, release) == []


@pytest.mark.parametrize("name", GRAPHS)
def test_the_operators_crd_takes_the_graph(name: str) -> None:
    assert validators.graph_errors(manifests.kind(documents(name, "dgd.yaml"), "DynamoGraphDeployment")) == []


@pytest.mark.parametrize(("name", "file"), FILES)
def test_the_api_server_and_the_kubelet_find_nothing_wrong(name: str, file: str) -> None:
    assert validators.api_errors(documents(name, file)) == []


@pytest.mark.parametrize(("name", "file"), FILES)
def test_reading_and_writing_it_again_changes_nothing(name: str, file: str) -> None:
    found = documents(name, file)
    assert manifests.load(yaml.safe_dump_all(found)) == found


@pytest.mark.parametrize("name", TARGETS)
def test_kubectl_reads_what_we_wrote(name: str, tmp_path: Path) -> None:
    """Through kubectl's own parser (go-yaml reads some words otherwise than Python does)."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on this machine")
    for number, files in enumerate(
        (["deploy.yaml", "bench.yaml", "monitor.yaml", "model-cache.yaml", "dgd.yaml"], ["deployment.yaml"])
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        present = [file for file in files if file in manifests.rendered(name)]
        for file in present:
            (folder / file).write_text(manifests.rendered(name)[file])
        (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": present}))
        done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        expected = [document for file in present for document in documents(name, file)]
        assert in_order(manifests.load(done.stdout)) == in_order(expected)


def in_order(found: list[Document]) -> list[Document]:
    """Documents sorted by kind and name."""
    return sorted(found, key=lambda document: (document["kind"], document["metadata"]["name"]))


def test_kubectl_decodes_the_core_kinds_into_its_own_types(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on this machine")
    for file in ("deploy.yaml", "deployment.yaml", "model-cache.yaml", "bench.yaml"):
        for document in documents("h200-disagg", file):
            path = tmp_path / "document.json"
            path.write_text(json.dumps(document))
            command = [kubectl, "annotate", "--local", "-f", str(path), "-o", "json", "seen=yes"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            seen = json.loads(done.stdout)
            assert seen["metadata"].pop("annotations") == {"seen": "yes"}
            assert seen == document


# The validators can say no -------------------------------------------------------------------------

Break = Callable[[Document], Any]


def main(document: Document) -> Document:
    """The first container of a document's first pod."""
    _, _, spec = next(manifests.pod_specs(document))
    container: Document = spec["containers"][0]
    return container


SCHEMA_BREAKS: dict[str, Break] = {
    "an unknown field": lambda pod: pod["spec"].update(hostIpc=True),
    "an unknown field of the container": lambda pod: main(pod).update(arguments=[]),
    "a number where text belongs": lambda pod: main(pod)["args"].append(64),
    "text where a number belongs": lambda pod: pod["spec"].update(terminationGracePeriodSeconds="120"),
    "an environment value that is no text": lambda pod: main(pod)["env"].append({"name": "A", "value": 1}),
    "no containers": lambda pod: pod["spec"].pop("containers"),
    "a container without a name": lambda pod: main(pod).pop("name"),
    "a toleration without a list": lambda pod: pod["spec"].update(tolerations={"key": "a"}),
}


@pytest.mark.parametrize("case", SCHEMA_BREAKS)
def test_the_core_schemas_refuse(case: str) -> None:
    pod = manifests.kind(documents("h200-disagg", "deploy.yaml"), "Pod")
    SCHEMA_BREAKS[case](pod)
    for release in KUBERNETES:
        assert validators.schema_errors(pod, release)


def components(graph: Document) -> list[Document]:
    """A graph's components."""
    found: list[Document] = graph["spec"]["components"]
    return found


GRAPH_BREAKS: dict[str, Break] = {
    "a field of v1alpha1": lambda graph: graph["spec"].update(services={}),
    "an unknown component type": lambda graph: components(graph)[1].update(type="main"),
    "an unknown framework": lambda graph: graph["spec"].update(backendFramework="vLLM"),
    "two components of one name": lambda graph: components(graph).append(components(graph)[0]),
    "names that differ by case only": lambda graph: components(graph)[0].update(name="PREFILL"),
    "a component without a name": lambda graph: components(graph)[0].pop("name"),
    "a sidecar without an image": lambda graph: components(graph)[0]["podTemplate"]["spec"][
        "containers"
    ].append({"name": "side"}),
    "an unknown field of a container": lambda graph: main(graph).update(mountPoint="/x"),
    "a restart at creation": lambda graph: graph["spec"].update(restart={"id": "1"}),
    "a size that is none": lambda graph: components(graph)[1].update(sharedMemorySize="64 GB"),
    "an override that is no release": lambda graph: components(graph)[0].update(
        runtimeVersionOverride="latest"
    ),
}


@pytest.mark.parametrize("case", GRAPH_BREAKS)
def test_the_crd_refuses(case: str) -> None:
    graph = manifests.kind(documents("h200-disagg", "dgd.yaml"), "DynamoGraphDeployment")
    GRAPH_BREAKS[case](graph)
    assert validators.graph_errors(graph)


def port(document: Document, name: str) -> None:
    """Rename the first port of a pod."""
    main(document)["ports"][0]["name"] = name


API_BREAKS: dict[str, tuple[Break, str]] = {
    "a long name": (lambda pod: pod["metadata"].update(name="a" * 64), "name"),
    "an upper-case name": (lambda pod: pod["metadata"].update(name="H200"), "name"),
    "a long port name": (lambda pod: port(pod, "a-rather-long-port"), "port name"),
    "a port name of digits": (lambda pod: port(pod, "8000"), "port name"),
    "a probe of no port": (lambda pod: main(pod)["ports"].pop(), "readinessProbe asks"),
    "a quantity with a blank": (
        lambda pod: main(pod)["resources"]["requests"].update(memory="64 Gi"),
        "quantity",
    ),
    "a quantity that is a number": (lambda pod: main(pod)["resources"]["requests"].update(cpu=8), "quantity"),
    "a GPU requested only": (lambda pod: main(pod)["resources"].pop("limits"), "GPUs requested"),
    "a mount of nothing": (lambda pod: pod["spec"]["volumes"].pop(), "volumes"),
    "a variable twice": (lambda pod: main(pod)["env"].append({"name": "HF_HOME", "value": "/"}), "twice"),
    "a bad label": (lambda pod: pod["metadata"]["labels"].update(app="a b"), "label"),
}


@pytest.mark.parametrize("case", API_BREAKS)
def test_what_no_schema_says_is_noticed(case: str) -> None:
    found = documents("h200-disagg", "deploy.yaml")
    change, word = API_BREAKS[case]
    change(manifests.kind(found, "Pod"))
    assert any(word in error for error in validators.api_errors(found)), validators.api_errors(found)
