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
from launcher.kubernetes.emit import emit
from tests.kubernetes import manifests, validators
from tests.kubernetes.manifests import DEPLOY, TARGETS, Document, documents

FILES = manifests.files()


def rendered(capsys: pytest.CaptureFixture[str], *words: str) -> list[Document]:
    """The documents that `launcher render` prints."""
    assert main(["render", *words]) == 0, capsys.readouterr().err
    return manifests.load(capsys.readouterr().out)


# The committed files -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "file"), FILES)
def test_the_committed_manifest_is_what_render_writes(name: str, file: str) -> None:
    committed = (DEPLOY / name / file).read_text()
    assert committed == manifests.rendered(name)[file], (
        "the target, the plan or the renderer changed: launcher render --all --write configs/deploy"
    )


def test_nothing_else_is_committed() -> None:
    found = {(path.parent.name, path.name) for path in DEPLOY.rglob("*") if path.is_file()}
    assert found - {(DEPLOY.name, "README.md")} == set(FILES)


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
                    if spec["containers"][0]["name"] != "etcd":
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
    assert validators.api_errors(found) == []


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


def test_a_line_break_in_a_value_does_not_leave_the_comment(capsys: pytest.CaptureFixture[str]) -> None:
    found = rendered(capsys, "--target", "h200-agg", "--set", "engine.env.NOTE=one\nkind: Secret")
    assert [document["kind"] for document in found] == ["Pod", "Service", "PodDisruptionBudget"]
    assert found[0]["spec"]["containers"][0]["args"][-1] == "engine.env.NOTE=one\nkind: Secret"


def test_render_is_listed() -> None:
    assert "render" in launcher.cli.COMMANDS
    assert set(TARGETS) == {path.name for path in DEPLOY.iterdir() if path.is_dir()}
