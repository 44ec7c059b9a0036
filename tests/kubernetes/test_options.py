"""Every choice about the cluster is a flag of `launcher render`, and what cannot be is refused in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cli import main
from launcher.findings import LauncherError
from launcher.kubernetes.options import Options
from launcher.kubernetes.render import KINDS
from tests.kubernetes import manifests, validators
from tests.kubernetes.manifests import DEPLOY, Document


def rendered(capsys: pytest.CaptureFixture[str], *words: str) -> list[Document]:
    """The documents that `launcher render` prints."""
    assert main(["render", *words]) == 0, capsys.readouterr().err
    return manifests.load(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What `launcher render` says as it exits with 2, having printed nothing."""
    assert main(["render", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


IMAGE, RUNTIME = "registry.example:5000/team/launcher:7", "registry.example/runtime:1.3.1"
CLUSTER = ["--namespace", "serving", "--name", "chat", "--image", IMAGE, "--runtime-image", RUNTIME]
CLUSTER += ["--secret", "hub", "--storage-class", "fast-nfs", "--storage", "1Ti", "--claim", "weights"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_choice_is_a_flag(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = rendered(capsys, "--target", "gb200-trtllm-disagg", "--kind", kind, *CLUSTER)
    assert validators.api_errors(found) == []
    for document in found:
        assert document["metadata"]["namespace"] == "serving"
        assert document["metadata"]["name"].startswith(("chat", "weights"))
        for _, _, spec in manifests.pod_specs(document):
            (container,) = spec["containers"]
            if container["name"] == "etcd":
                continue
            assert container["image"] == (RUNTIME if kind == "dgd" else IMAGE)
            assert container["envFrom"][0]["secretRef"]["name"] == "hub"
            claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
            assert claims[0]["persistentVolumeClaim"]["claimName"] == "weights"
    if kind in ("cache", "job"):
        assert found[0]["spec"]["storageClassName"] == "fast-nfs"
        assert found[0]["spec"]["resources"]["requests"]["storage"] == "1Ti"
    if kind in ("bench", "job"):
        assert found[-1]["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "http://chat:8000"


def test_a_foreign_image_tag_comes_with_the_dynamo_release(capsys: pytest.CaptureFixture[str]) -> None:
    found = rendered(capsys, "--target", "h200-agg", "--kind", "dgd", "--runtime-image", "me/vllm:latest")
    components = manifests.kind(found, "DynamoGraphDeployment")["spec"]["components"]
    assert [component["runtimeVersionOverride"] for component in components] == ["1.3.1", "1.3.1"]
    assert validators.graph_errors(manifests.kind(found, "DynamoGraphDeployment")) == []


def test_node_labels_taints_and_pull_secrets_of_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "h200-agg"]
    words += ["--set", "pod.node_selector={cloud.example/pool: gpu}", "--set", "pod.image_pull_secrets=[ngc]"]
    words += ["--set", "pod.tolerations=[{key: team, operator: Equal, value: ml, effect: NoExecute}]"]
    found = rendered(capsys, *words)
    spec = manifests.kind(found, "Pod")["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/arch": "amd64", "cloud.example/pool": "gpu"}
    assert spec["imagePullSecrets"] == [{"name": "ngc"}]
    assert spec["tolerations"][1] == {
        "key": "team",
        "operator": "Equal",
        "value": "ml",
        "effect": "NoExecute",
    }
    # The launcher has no use for them.
    assert spec["containers"][0]["args"] == ["serve", "--target", "h200-agg"]
    assert validators.schema_errors(manifests.kind(found, "Pod"), "1.33") == []
    for kind in ("bench", "cache"):
        job = manifests.kind(rendered(capsys, *words, "--kind", kind), "Job")
        assert job["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "ngc"}]


def test_another_kind_of_node(capsys: pytest.CaptureFixture[str]) -> None:
    graph = ["--target", "gb200-trtllm-disagg", "--kind", "dgd", "--machine", "B200"]
    found = manifests.kind(rendered(capsys, *graph), "DynamoGraphDeployment")
    decode = found["spec"]["components"][2]["podTemplate"]["spec"]
    # Eight GPUs on a B200 node hold both roles.
    assert "requiredDuringSchedulingIgnoredDuringExecution" in decode["affinity"]["podAffinity"]
    assert decode["nodeSelector"] == {"kubernetes.io/arch": "amd64"}


def test_the_benchmark_of_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    url = "http://h200-agg-frontend:8000"
    (job,) = rendered(capsys, "--target", "h200-agg", "--kind", "bench", "--url", url)
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][-2:] == ["--url", url]


# What cannot be ------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[list[str], list[str]]] = {
    "a name with a capital": (["--target", "sim", "--name", "Sim"], ["'Sim'", "--name", "lower-case"]),
    "a name with a digit first": (["--target", "sim", "--name", "7b"], ["'7b'", "a letter first"]),
    "a name that leaves no room": (["--target", "sim", "--name", "a" * 41], ["--name", "40"]),
    "a namespace with a dot": (["--target", "sim", "--namespace", "a.b"], ["--namespace"]),
    "a runtime image with a blank": (["--target", "h200-agg", "--runtime-image", "a b"], ["--runtime-image"]),
    "an image with a blank": (["--target", "sim", "--image", "a b"], ["--image", "TAG"]),
    "a storage size without unit": (
        ["--target", "h200-agg", "--kind", "cache", "--storage", "200"],
        ["200Gi"],
    ),
    "a secret that is a token": (["--target", "sim", "--secret", "hf_ABC"], ["--secret"]),
    "a url without scheme": (
        ["--target", "sim", "--kind", "bench", "--url", "sim:8000"],
        ["--url", "http://"],
    ),
    "an unknown kind": (["--target", "sim", "--kind", "pods"], ["'pods'", "--kind"]),
    "an unknown target": (["--target", "h200-dissag"], ["h200-disagg"]),
    "no target": ([], ["--target NAME"]),
    "a target the image does not have": (
        ["--target", str(DEPLOY.parent / "targets" / "sim.yaml")],
        ["--set"],
    ),
    "a node that is too small": (
        ["--target", "gb200-trtllm-disagg", "--machine", "GB200"],
        ["needs 5 GPUs", "GB200 4", "--kind dgd"],
    ),
    "a machine the target is not for": (["--target", "h200-agg", "--machine", "B200"], ["H200"]),
    "a graph of simulated workers": (["--target", "sim", "--kind", "dgd"], ["mocker", "--kind pod"]),
    "a graph on a shared GPU": (["--target", "h200-1gpu-disagg", "--kind", "dgd"], ["one GPU", "--kind pod"]),
    "a graph on another port": (
        ["--target", "h200-agg", "--kind", "dgd", "--http-port", "8080"],
        ["--http-port 8000"],
    ),
    "a cache for a built-in model": (["--target", "sim", "--kind", "cache"], ["downloads nothing"]),
    "an API on loopback": (["--target", "sim", "--http-host", "127.0.0.1"], ["--http-host 0.0.0.0"]),
    "an admin server on loopback": (
        ["--target", "sim", "--admin-host", "127.0.0.1"],
        ["--admin-host 0.0.0.0"],
    ),
    "any free port": (["--target", "sim", "--http-port", "0"], ["http_port is 0"]),
    "a token in the manifest": (
        ["--target", "h200-agg", "--set", "engine.env.HF_TOKEN=hf_abc"],
        ["engine.env.HF_TOKEN", "Secret hf-token-secret"],
    ),
    "a target that contradicts itself": (
        ["--target", "h200-disagg", "--set", "kv.events=false"],
        ["kv-events-off"],
    ),
    "all targets to standard output": (["--all"], ["--write DIR"]),
    "all targets and one": (["--all", "--write", "x", "--target", "sim"], ["--target"]),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_is_refused_with_the_way_out(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected = REFUSALS[case]
    said = refused(capsys, *words)
    for word in expected:
        assert word in said
    assert "hf_abc" not in said
    assert "Traceback" not in said


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["render", "--target", "sim", "--write", str(tmp_path / "file")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_one_kind_to_a_folder(tmp_path: Path) -> None:
    assert main(["render", "--target", "sim", "--kind", "bench", "--write", str(tmp_path)]) == 0
    assert [path.name for path in (tmp_path / "sim").iterdir()] == ["bench.yaml"]


def test_options_name_all_faults_at_once() -> None:
    with pytest.raises(LauncherError) as caught:
        Options(name="A", namespace="B", image="").check()
    assert [finding.where for finding in caught.value.findings] == ["--name", "--namespace", "--image"]
