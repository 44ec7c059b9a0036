"""`launcher render`: the same text everywhere, each choice a flag, and plain words for what cannot be."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import launcher.cli
from launcher.cli import COMMANDS, Parser, common, main
from launcher.findings import LauncherError
from launcher.kubernetes.emit import emit
from launcher.kubernetes.options import Options
from launcher.kubernetes.render import KINDS
from tests.kubernetes import manifests
from tests.kubernetes.manifests import DEPLOY, TARGETS, Document, documents

FILES = manifests.files()


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


# The committed files -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "file"), FILES)
def test_the_committed_manifest_is_what_render_writes(name: str, file: str) -> None:
    committed = (DEPLOY / name / file).read_text()
    assert committed == manifests.rendered(name)[file], (
        "the target, the plan or the renderer changed: launcher render --all --write configs/deploy"
    )


def test_nothing_else_is_committed() -> None:
    found = {(path.parent.name, path.name) for path in DEPLOY.rglob("*") if path.is_file()}
    assert found == set(FILES)


def test_render_all_writes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shell's environment says: the folder is committed for everybody."""
    monkeypatch.setenv("LAUNCHER_HTTP_PORT", "8123")
    monkeypatch.setenv("HF_HOME", "/somewhere")
    monkeypatch.chdir(tmp_path)
    assert main(["render", "--all", "--write", "out"]) == 0
    written = {(path.parent.name, path.name): path.read_text() for path in Path("out").rglob("*.yaml")}
    assert written == {(name, file): manifests.rendered(name)[file] for name, file in FILES}


@pytest.mark.parametrize(("name", "file"), FILES)
def test_nothing_of_this_machine_is_in_it(name: str, file: str) -> None:
    text = manifests.rendered(name)[file]
    for foreign in (
        sys.prefix,
        sys.executable,
        str(manifests.ROOT),
        str(Path.home()),
        os.uname().nodename,
        "/tmp/g",
    ):
        assert foreign not in text
    assert not re.search(r"\b20\d\d-\d\d-\d\d", text)


@pytest.mark.parametrize(("name", "file"), FILES)
def test_the_head_says_how_it_was_made(name: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [line for line in manifests.rendered(name)[file].splitlines() if line.startswith("# Made by: ")]
    assert main(shlex.split(line.removeprefix("# Made by: launcher "))) == 0
    assert capsys.readouterr().out == manifests.rendered(name)[file]


# The launcher's own command lines ------------------------------------------------------------------


def launcher_arguments() -> list[tuple[str, list[str]]]:
    """Target and arguments of every container that runs the launcher."""
    found = []
    for name, file in FILES:
        if file != "dgd.yaml":
            for document in documents(name, file):
                for _, _, spec in manifests.pod_specs(document):
                    found.append((name, spec["containers"][0]["args"]))
    return found


@pytest.mark.parametrize(("name", "words"), launcher_arguments())
def test_the_launchers_own_parser_takes_it(name: str, words: list[str]) -> None:
    command, *rest = words
    if importlib.util.find_spec(f"launcher.cli.{command}") is None:
        pytest.skip(f"launcher {command} is not written yet")
    assert command in COMMANDS
    args = parsed(command, rest)
    assert args.target == name


def parsed(command: str, words: list[str]) -> argparse.Namespace:
    """A command's arguments, as the command line parses them."""
    module = importlib.import_module(f"launcher.cli.{command}")
    parser = Parser(prog=f"launcher {command}")
    module.configure(parser)
    return parser.parse_args(words)


def test_changes_of_the_target_reach_the_pod(capsys: pytest.CaptureFixture[str]) -> None:
    """The launcher in the pod resolves the very target that was rendered."""
    words = ["--target", "h200-disagg", "--set", "workers.prefill.count=2", "--set", "workers.decode.count=6"]
    words += ["--http-port", "8080", "--set", "deadlines.grace_s=300"]
    found = rendered(capsys, *words)
    pod = manifests.kind(found, "Pod")
    arguments = pod["spec"]["containers"][0]["args"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 300
    assert manifests.kind(found, "Service")["spec"]["ports"][0]["port"] == 8080
    target = common.load(parsed(arguments[0], arguments[1:])).resolved.target
    assert target == common.load(parsed("render", words)).resolved.target


def test_a_simulated_run_of_a_real_target(capsys: pytest.CaptureFixture[str]) -> None:
    found = rendered(capsys, "--target", "h200-disagg", "--engine", "mocker")
    container = manifests.kind(found, "Pod")["spec"]["containers"][0]
    assert container["args"] == ["serve", "--target", "h200-disagg", "--engine", "mocker"]
    assert "limits" not in container["resources"]
    assert container["image"] == "gpt-oss-launcher:vllm-1.3.1"
    assert manifests.api_errors(found) == []


# Choices about the cluster -------------------------------------------------------------------------

CLUSTER = ["--namespace", "serving", "--name", "chat", "--image", "registry.example:5000/team/launcher:7"]
CLUSTER += ["--secret", "hub", "--storage-class", "fast-nfs", "--storage", "1Ti", "--claim", "weights"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_choice_is_a_flag(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = rendered(capsys, "--target", "gb200-trtllm-disagg", "--kind", kind, *CLUSTER)
    assert manifests.api_errors(found) == []
    for document in found:
        assert document["metadata"]["namespace"] == "serving"
        assert document["metadata"]["name"].startswith(("chat", "weights"))
        for _, _, spec in manifests.pod_specs(document):
            (container,) = spec["containers"]
            assert container["image"] == "registry.example:5000/team/launcher:7"
            assert container["envFrom"][0]["secretRef"]["name"] == "hub"
            claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
            assert claims[0]["persistentVolumeClaim"]["claimName"] == "weights"
    if kind == "cache":
        assert found[0]["spec"]["storageClassName"] == "fast-nfs"
        assert found[0]["spec"]["resources"]["requests"]["storage"] == "1Ti"
    if kind == "bench":
        assert found[0]["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "http://chat:8000"


def test_a_foreign_image_tag_comes_with_the_dynamo_release(capsys: pytest.CaptureFixture[str]) -> None:
    found = rendered(
        capsys, "--target", "h200-agg", "--kind", "dgd", "--image", "registry.example/vllm:latest"
    )
    components = manifests.kind(found, "DynamoGraphDeployment")["spec"]["components"]
    assert [component["runtimeVersionOverride"] for component in components] == ["1.3.1", "1.3.1"]
    assert manifests.graph_errors(manifests.kind(found, "DynamoGraphDeployment")) == []


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
    assert manifests.schema_errors(manifests.kind(found, "Pod"), "1.33") == []
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


# The text itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "y",
        "N",
        "on",
        "Off",
        "yes",
        "null",
        "~",
        "",
        "9.0",
        "1",
        "0x10",
        "0o7",
        "1e3",
        "1:30",
        "true",
        "- a",
        "#",
    ],
)
def test_text_stays_text_for_every_reader(value: str) -> None:
    """Also for those that take more words for booleans than PyYAML does."""
    text = emit([{"value": value}], [])
    assert manifests.load(text) == [{"value": value}]
    assert text.startswith("---\nvalue: '")


def test_equal_values_are_written_out() -> None:
    shared: dict[str, Any] = {"a": ["b"]}
    assert "&" not in emit([{"one": shared, "two": shared}], [])


def test_long_comments_wrap_and_commands_do_not() -> None:
    text = emit([{"a": 1}], ["word " * 40, "Made by: " + "word " * 40])
    head = text.partition("---")[0].splitlines()
    assert all(line.startswith("# ") for line in head)
    assert [len(line) > 120 for line in head] == [False, False, True]


def test_render_is_listed() -> None:
    assert "render" in launcher.cli.COMMANDS
    assert set(TARGETS) == {path.name for path in DEPLOY.iterdir()}
