"""A graph runs the processes of the plan: the same command lines, an environment that differs by rule."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.kubernetes import graph
from launcher.plan.model import Plan, Process, Role
from launcher.target.resolve import resolve
from tests.kubernetes import manifests
from tests.kubernetes.manifests import TARGETS, Document, documents
from tests.parsers.vllm_flags import VLLM_OF_DYNAMO, check_vllm_flags
from tests.support.plans import plan

GRAPHS = [name for name in TARGETS if "dgd.yaml" in manifests.rendered(name)]
ACCEPT = Path(__file__).parents[1] / "parsers" / "accept.py"
LATEST = "1.6.1"


@functools.cache
def paper_plan(name: str) -> Plan:
    """The plan that the graph is made from."""
    return manifests.wanted(name).spread().plan


def components(name: str) -> dict[str, Document]:
    """A graph's components by name."""
    document = manifests.kind(documents(name, "dgd.yaml"), "DynamoGraphDeployment")
    return {component["name"]: component for component in document["spec"]["components"]}


def main(component: Document) -> Document:
    """A component's container."""
    (container,) = component["podTemplate"]["spec"]["containers"]
    found: Document = container
    return found


def command_line(component: Document) -> list[str]:
    """What a component runs."""
    return [*main(component)["command"], *main(component)["args"]]


def variables(component: Document) -> dict[str, Any]:
    """A component's environment."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in main(component)["env"]}


@functools.cache
def local_plan(name: str) -> Plan:
    """The plan as serving makes it on the machine that the target is for, with this machine's settings."""
    return plan(name)


def by_role(plan: Plan) -> Iterator[tuple[Role, list[Process]]]:
    """The plan's processes of each role that a graph has."""
    for role in graph.TYPES:
        found = [process for process in plan.processes if process.role is role]
        if found:
            yield role, found


def neutral(words: list[str], ports: dict[str, int], run_dir: str) -> list[str]:
    """Words with the purpose of each port in place of its number, without the run's folder and the worker's name."""
    result = []
    for word in words:
        for purpose, number in ports.items():
            if purpose != "http":
                word = re.sub(rf"(?<!\d){number}(?!\d)", f"<{purpose}>", word)
        result.append(re.sub(r"RUN/kv\.\w+-\d+", "RUN/kv.NAME", word.replace(run_dir, "RUN")))
    return result


@pytest.mark.parametrize("name", GRAPHS)
def test_every_process_of_the_plan_is_there(name: str) -> None:
    found = components(name)
    roles = dict(by_role(local_plan(name)))
    assert list(found) == [role.value for role in roles]
    for role, processes in roles.items():
        assert found[role.value]["replicas"] == len(processes)
        assert found[role.value]["type"] == ("worker" if role is Role.AGGREGATED else role.value)
        gpus = main(found[role.value])["resources"].get("limits", {}).get("nvidia.com/gpu", "0")
        assert int(gpus) == len(processes[0].gpus)


@pytest.mark.parametrize("name", GRAPHS)
def test_command_lines_are_the_plans(name: str) -> None:
    """Also those of the second and later workers of a role, which differ by their ports only."""
    own, local = paper_plan(name), local_plan(name)
    for component in components(name).values():
        process = next(process for process in own.processes if process.role.value == component["name"])
        # In the run's folder, which is a volume to read there, no socket could be bound.
        assert command_line(component) == [
            word.replace(f"ipc://{own.run_dir}/", "ipc:///tmp/") for word in process.argv
        ]
        expected = neutral(list(process.argv[1:]), dict(process.ports), own.run_dir)
        for other in local.processes:
            if other.role is process.role:
                assert neutral(list(other.argv[1:]), dict(other.ports), local.run_dir) == expected


@pytest.mark.parametrize("name", GRAPHS)
def test_the_environment_differs_by_rule_only(name: str) -> None:
    own = paper_plan(name)
    for component in components(name).values():
        process = next(process for process in own.processes if process.role.value == component["name"])
        found = variables(component)
        assert found.pop("HF_HOME") == "/model-cache"
        assert found.keys() == process.env.keys() - graph.DROPPED.keys()
        for variable, value in found.items():
            expected = graph.REPLACED[variable][0] if variable in graph.REPLACED else process.env[variable]
            assert value == expected


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_of_one_pod_is_left(name: str) -> None:
    """Whatever the plan gains later: no loopback address, no path of the run but mounted files, no folder of files."""
    for component in components(name).values():
        mounted = [mount["mountPath"] for mount in main(component)["volumeMounts"]]
        for variable, value in variables(component).items():
            if isinstance(value, str):
                assert "127.0.0.1" not in value, variable
                assert "localhost" not in value, variable
                assert paper_plan(name).run_dir not in value, variable
        for word in command_line(component):
            if "/gpt-oss-launcher/" in word:
                assert any(word.startswith(path) for path in mounted), word
            if "127.0.0.1" in word:
                # KV events are consumed in the process that publishes them.
                assert "enable_kv_cache_events" in word


@pytest.mark.parametrize("name", GRAPHS)
def test_the_head_names_each_difference(name: str) -> None:
    head = manifests.rendered(name)["dgd.yaml"].partition("---")[0]
    own = paper_plan(name)
    used = {variable for process in own.processes if process.role in graph.TYPES for variable in process.env}
    for variable in used & {*graph.DROPPED, *graph.REPLACED}:
        assert f"#   {variable}: " in head


@pytest.mark.parametrize("name", [name for name in GRAPHS if "disagg" in name])
def test_prefill_and_decode_are_colocated(name: str) -> None:
    found = components(name)
    fits = name != "gb200-trtllm-disagg"
    for role in ("prefill", "decode"):
        template = found[role]["podTemplate"]
        affinity = template["spec"]["affinity"]["podAffinity"]
        if fits:
            (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
            assert term["topologyKey"] == "kubernetes.io/hostname"
        else:
            # Five GPUs on nodes of four: two nodes, of one NVLink domain where there is such a label.
            (weighted,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
            term = weighted["podAffinityTerm"]
            assert term["topologyKey"] == "nvidia.com/gpu.clique"
        for expression in term["labelSelector"]["matchExpressions"]:
            for other in ("prefill", "decode"):
                labels = found[other]["podTemplate"]["metadata"]["labels"]
                assert labels[expression["key"]] in expression["values"]


def test_the_gb200_graph_asks_for_gb200_nodes() -> None:
    for component in components("gb200-trtllm-disagg").values():
        spec = component["podTemplate"]["spec"]
        if component["type"] != "frontend":
            assert spec["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
            assert "NVIDIA-GB200" in json.dumps(spec["affinity"])
            assert "NVIDIA-B200" not in json.dumps(spec["affinity"])


@pytest.mark.parametrize("name", [name for name in GRAPHS if "trtllm" in name])
def test_engine_files_are_mounted_where_the_command_line_looks(name: str) -> None:
    config = manifests.kind(documents(name, "dgd.yaml"), "ConfigMap")
    own = paper_plan(name)
    for component in components(name).values():
        if component["type"] == "frontend":
            continue
        spec = component["podTemplate"]["spec"]
        (volume,) = [volume for volume in spec["volumes"] if "configMap" in volume]
        assert volume["configMap"]["name"] == config["metadata"]["name"]
        (mount,) = [mount for mount in main(component)["volumeMounts"] if mount["name"] == volume["name"]]
        line = command_line(component)
        path = line[line.index("--extra-engine-args") + 1]
        folder, _, file = path.rpartition("/")
        assert folder == mount["mountPath"]
        process = next(process for process in own.processes if process.role.value == component["name"])
        assert config["data"][file] == process.files[path]
        assert yaml.safe_load(config["data"][file])


@pytest.mark.parametrize("name", GRAPHS)
def test_the_image_is_the_engines_and_its_release_is_known(name: str) -> None:
    target = resolve(name).target
    for component in components(name).values():
        assert main(component)["image"] == target.validated.image
        assert "runtimeVersionOverride" not in component


# Real parsers --------------------------------------------------------------------------------------


def questions() -> list[tuple[str, str, dict[str, Any]]]:
    """Target, role and the question of every command line of every graph."""
    found = []
    for name in GRAPHS:
        for component in components(name).values():
            line = command_line(component)
            env = {key: value for key, value in variables(component).items() if isinstance(value, str)}
            found.append((name, component["name"], {"module": line[2], "argv": line[3:], "env": env}))
    return found


def refused(python: str, release: str) -> list[str]:
    """What the parsers of a release say against any command line."""
    asked = questions()
    done = subprocess.run(
        [python, str(ACCEPT)],
        input=json.dumps([question for _, _, question in asked]),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    problems = []
    for (name, role, question), answer in zip(asked, json.loads(done.stdout), strict=True):
        if not answer["accepted"]:
            problems.append(f"{name} {role}: {answer['error']}")
        elif question["module"] == "dynamo.vllm":
            problems += [
                f"{name} {role}: {text}"
                for text in check_vllm_flags(answer["left_over"], VLLM_OF_DYNAMO[release])
            ]
    return problems


def test_the_installed_dynamo_takes_every_command_line() -> None:
    assert refused(sys.executable, LATEST) == []


@pytest.mark.compat
@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
def test_other_releases_take_every_command_line(release: str) -> None:
    python = Path(f"/opt/dyn/{release}/bin/python")
    if not python.is_file():
        pytest.skip(f"no Dynamo {release} at {python}")
    assert refused(str(python), release) == []
