"""Each command of `configs/deploy/README.md`, for each target, as far as it can run without a cluster."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.cli import COMMANDS, Parser, main
from launcher.target.resolve import resolve
from tests.kubernetes import manifests, validators
from tests.kubernetes.manifests import DEPLOY, ROOT, TARGETS, documents

README = (DEPLOY / "README.md").read_text()
SECONDS = {"s": 1, "m": 60, "h": 3600}
NO_DGD = ("sim", "h200-1gpu-disagg")


def commands(target: str) -> list[list[str]]:
    """The words of every command of the page, with its variables set."""
    base = "trtllm-1.2.1" if "trtllm" in target else "vllm-1.3.1"
    values = {"TARGET": target, "NAMESPACE": "gpt-oss", "REGISTRY": "registry.example.com/team"}
    values["IMAGE"] = f"{values['REGISTRY']}/gpt-oss-launcher:{base}"
    found = []
    for block in re.findall(r"^```bash\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            text = re.sub(r"\$([A-Z]+)", lambda match: values[match[1]], line.removesuffix(" &"))
            found.append(shlex.split(text, comments=True))
    return found


def option(words: list[str], name: str) -> str:
    """The value of `--name=VALUE` or `-n VALUE`."""
    for place, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name:
            return words[place + 1]
    raise AssertionError(f"no {name} in {words}")


def seconds(text: str) -> int:
    """`4h` and its like."""
    return int(text[:-1]) * SECONDS[text[-1]]


def objects(target: str) -> dict[str, dict[str, object]]:
    """Every object of a target's manifests, by kind and name as kubectl names it."""
    found = {}
    for file in manifests.rendered(target):
        for document in documents(target, file):
            kind = {"Service": "svc"}.get(document["kind"], document["kind"].lower())
            found[f"{kind}/{document['metadata']['name']}"] = document
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_files_and_names_exist(target: str) -> None:
    known = objects(target)
    for words in commands(target):
        if words[0] != "kubectl" or words[1] in ("create", "label"):
            continue
        assert option(words, "-n") == "gpt-oss"
        if words[1] in ("apply", "delete") and "-f" in words:
            path = Path(option(words, "-f"))
            assert path.parts[:2] == ("deploy", target)
            missing = path.name not in manifests.rendered(target)
            expected = (path.name == "dgd.yaml" and target in NO_DGD) or (path.name, target) == (
                "model-cache.yaml",
                "sim",
            )
            assert missing == expected, path
            continue
        for name in [word for word in words[2:] if re.fullmatch(r"[a-z]+/[a-z0-9-]+", word)]:
            if (
                name in (f"dynamographdeployment/{target}", f"job/{target}-model-download")
                and name not in known
            ):
                assert target in NO_DGD
                continue
            assert name in known, (words, sorted(known))


@pytest.mark.parametrize("target", TARGETS)
def test_nobody_gives_up_before_the_cluster_does(target: str) -> None:
    known = objects(target)
    for words in commands(target):
        if words[:2] not in (["kubectl", "wait"], ["kubectl", "rollout"]):
            continue
        patience = seconds(option(words, "--timeout"))
        for name in words:
            if name.startswith("job/") and name in known:
                job = known[name]["spec"]
                assert isinstance(job, dict)
                assert patience >= job["activeDeadlineSeconds"]
        assert patience >= resolve(target).target.deadlines.start_s or "job/" in " ".join(words)


@pytest.mark.parametrize("target", TARGETS)
def test_the_launchers_commands_are_taken(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = set()
    for words in commands(target):
        if words[0] != "launcher":
            continue
        seen.add(words[1])
        assert words[1] in COMMANDS
        if words[1] == "render":
            assert main(words[1:]) == 0
            continue
        if importlib.util.find_spec(f"launcher.cli.{words[1]}") is not None:
            module = importlib.import_module(f"launcher.cli.{words[1]}")
            parser = Parser(prog=words[1])
            module.configure(parser)
            parser.parse_args(words[2:])
    assert seen == {"render", "smoke", "status"}
    written = {path.name: path.read_text() for path in (tmp_path / "deploy" / target).iterdir()}
    assert written.keys() == manifests.rendered(target).keys()
    for file, text in written.items():
        found = manifests.load(text)
        assert validators.api_errors(found) == []
        if file not in ("dgd.yaml", "monitor.yaml"):
            assert ("registry.example.com/team/gpt-oss-launcher:" in text) == ("image:" in text)


def test_namespace_secret_and_label_are_made_by_kubectl() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on this machine")
    made = []
    for words in commands("h200-disagg"):
        if words[:2] == ["kubectl", "create"]:
            command = [kubectl, *words[1:], "--dry-run=client", "-o", "json"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            made.append(json.loads(done.stdout))
    assert [document["kind"] for document in made] == ["Namespace", "Secret"]
    secret = made[1]["metadata"]["name"]
    pod = manifests.kind(documents("h200-disagg", "deploy.yaml"), "Pod")
    assert pod["spec"]["containers"][0]["envFrom"][0]["secretRef"]["name"] == secret


def test_the_request_of_the_smoke_test() -> None:
    (words,) = [words for words in commands("h200-disagg") if words[0] == "curl"]
    body = json.loads(option(words, "-d"))
    assert body["model"] == resolve("h200-disagg").target.model.name
    assert body["messages"][0]["role"] == "user"


def test_both_pages_let_the_smoke_test_learn_of_a_simulated_engine() -> None:
    """Where `--admin` is missing, a simulated target ends the walk in a failure."""
    for page in (README, (ROOT / "README.md").read_text()):
        (walk,) = [
            block for block in re.findall(r"^```bash\n(.*?)^```", page, re.M | re.S) if "svc/" in block
        ]
        (smoke,) = re.findall(r"^launcher smoke (.*)", walk, re.M)
        admin = re.search(r"--admin http://localhost:(\d+)", smoke)
        assert admin is not None
        assert re.search(rf"^kubectl port-forward pod/\$TARGET {admin[1]}:9000 ", walk, re.M)


def test_images_are_those_of_the_manifests() -> None:
    """What the page builds is what each target's manifest names by default, under a registry."""
    built = {words[words.index("-t") + 1] for words in commands("sim") if words[:2] == ["docker", "build"]}
    pushed = {words[2] for words in commands("sim") if words[:2] == ["docker", "push"]}
    assert built == pushed
    wanted = set()
    for target in TARGETS:
        pod = manifests.kind(documents(target, "deploy.yaml"), "Pod")
        wanted.add("registry.example.com/team/" + pod["spec"]["containers"][0]["image"])
    assert built == wanted


def test_every_target_file_kind_and_flag_is_on_the_page() -> None:
    for target in TARGETS:
        assert f"`{target}`" in README
    for file in manifests.rendered("h200-agg"):
        assert f"`{file}`" in README
    module = importlib.import_module("launcher.cli.render")
    parser = Parser(prog="render")
    module.configure(parser)
    groups = {group.title: group for group in parser._action_groups}
    for action in groups["for the cluster"]._group_actions:
        assert f"`{action.option_strings[0]}" in README, action.option_strings
    assert (ROOT / "Dockerfile").is_file()
