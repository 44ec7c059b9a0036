"""Target files, names, `--set` and variables that are known to hurt parsers: each ends in findings, and soon."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import common
from launcher.findings import LauncherError
from tests.checks.bad import loads, plan_or_findings, quick, target_file

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{','.join('*' + chr(97 + level) for _ in range(9))}]\n"
    for level in range(9)
)
NASTY: dict[str, tuple[str | bytes, str]] = {
    "a YAML bomb": (BOMB, "YAML alias"),
    "an alias to itself": ("a: &a [*a]", "YAML alias"),
    "a merge key": ("<<: {a: 1}", "not a plain name"),
    "deep nesting": ("a: " + "[" * 5000 + "]" * 5000, "nest"),
    "deep mappings": ("\n".join(" " * level + "a:" for level in range(400)), "nested"),
    "duplicate keys": ("name: a\nname: b", "stands twice"),
    "duplicate keys that look different": ('name: a\n"name": b', "stands twice"),
    "tabs": ("engine:\n\tkind: vllm", "not valid YAML"),
    "a huge int": ("deadlines: {grace_s: " + "9" * 400 + "}", "too large"),
    "a huge int, by the thousand": ("deadlines: {grace_s: " + "9" * 5000 + "}", ""),
    "a huge float": ("deadlines: {grace_s: 1e999}", ""),
    "NaN": ("deadlines: {grace_s: .nan}", "not a finite number"),
    "infinity": ("deadlines: {grace_s: -.inf}", "not a finite number"),
    "a look-alike": ("n\u0430me: x", "no key of a target"),
    "full-width letters": ("\uff4eame: x", "no key of a target"),
    "a zero-width space": ("na\u200bme: x", "no key of a target"),
    "right to left": ("\u202ename: x", ""),
    "a null byte": ("name: 'a\x00b'", ""),
    "an escaped null byte": ('title: "a\\0b"', ""),
    "a lone surrogate": (b"name: \xed\xa0\x80", "not UTF-8"),
    "an escaped surrogate": ('title: "\\ud800"', ""),
    "Latin-1": (b"title: \xe9", "not UTF-8"),
    "UTF-16": ("name: x".encode("utf-16"), ""),
    "a byte order mark": ("\ufeffname: x", ""),
    "Python in a tag": ("a: !!python/object/apply:os.system ['true']", ""),
    "a tag": ("a: !!binary aGk=", "YAML tag"),
    "two documents": ("a: 1\n---\nb: 2", ""),
    "nothing": ("", "is empty"),
    "a list": ("- a", "not a mapping"),
    "a scalar": ("x", "not a mapping"),
    "a null key": ("~: 1", ""),
    "a list as a key": ("? [a]\n: 1", "not a plain name"),
    "a very long line": ("title: " + "x" * 250_000, ""),
    "many keys": ("engine: {args: {" + ", ".join(f"k{number}: 1" for number in range(8000)) + "}}", ""),
    "a million bytes": ("# " + "x" * 1_000_000, "bytes long"),
    "octal": ("deadlines: {grace_s: 0o17}", ""),
    "sexagesimal": ("network: {http_port: 1:30}", ""),
    "a date": ("title: 2026-01-01", ""),
    "extends itself": ("extends: [../fuzz]", "unknown layer"),
    "extends the world": ("extends: /etc/passwd", "unknown layer"),
    "extends nothing": ("extends: {a: b}", "not a list"),
}


@pytest.mark.parametrize("name", NASTY)
def test_files_that_hurt(name: str, tmp_path: Path) -> None:
    content, words = NASTY[name]
    path = target_file(tmp_path, content)
    with pytest.raises(LauncherError) as caught, quick():
        common.load(argparse.Namespace(target=str(path)))
    text = " ".join(finding.line() for finding in caught.value.findings)
    assert words in text
    assert len(text) < 20_000
    assert "\n" not in text
    # Somebody has to find the place.
    assert all(str(path) in finding.line() or finding.where for finding in caught.value.findings)


def test_files_that_are_none(tmp_path: Path) -> None:
    loop, fifo, folder, gone = (tmp_path / f"{name}.yaml" for name in ("loop", "fifo", "folder", "gone"))
    loop.symlink_to(loop)
    os.mkfifo(fifo)
    folder.mkdir()
    gone.symlink_to(tmp_path / "nowhere")
    assert "symbolic links" in loads(loop)
    assert "not a regular file" in loads(fifo)
    assert "is a folder" in loads(folder)
    assert "No such file" in loads(gone)
    assert "not a regular file" in loads(Path("/dev/zero.yaml")) or "no target file" in loads(
        Path("/dev/zero.yaml")
    )
    assert "no target file" in loads(tmp_path / "never.yaml")
    device = tmp_path / "zero.yaml"
    device.symlink_to("/dev/zero")
    assert "not a regular file" in loads(device)
    proc = tmp_path / "mem.yaml"
    proc.symlink_to("/proc/self/mem")
    assert loads(proc)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = target_file(tmp_path, "name: x")
    path.chmod(0)
    assert "Permission denied" in loads(path)


def test_a_file_that_may_not_be_read_even_by_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = target_file(tmp_path, "name: x")

    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refused)
    assert "Permission denied" in loads(path)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "..",
        "../sim",
        "sim.yaml",
        "/dev/stdin.yaml",
        "a\0b/c",
        "x" * 5000,
        "x/" * 3000,
        "~/x.yaml",
        "sim\n",
        "SIM",
        "ѕim",
    ],
)
def test_names_of_targets(name: str) -> None:
    with pytest.raises(LauncherError), quick():
        common.load(argparse.Namespace(target=name))


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "=",
        "=1",
        ".=1",
        "a..b=1",
        "kv.block_size",
        "kv.block_size=",
        "kv.block_size=&a",
        "kv.block_size=*a",
        "kv.block_size=[1, 2",
        "kv=1",
        "kv.block_size.x=1",
        "name=\0",
        "engine.args.x=!!python/none",
        "kv.block_size=0x40",
        "kv.block_size=6_4",
        "kv.block_size=９",
        "kv.block_size=64\n",
        "engine.args.x=" + "[" * 3000,
        "x" * 100_000 + "=1",
        ".".join("a" * 500) + "=1",
        "workers.prefill.count=99999999999999999999",
        "engine.env.A=" + "x" * 40_000,
        "title=" + "y" * 10_000,
        "kv.block_size=.nan",
        "engine=null",
        "workers=null",
        "name=null",
        "model.id=../../etc",
        "model.path=\0",
        "model.draft.id=-x",
        "network.http_host=\0",
    ],
)
def test_sets_that_hurt(text: str) -> None:
    for target in ("sim", "h200-disagg"):
        plan_or_findings(target=target, set=[text])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PORT", "١٢٣"),
        ("HTTP_PORT", "1e3"),
        ("HTTP_PORT", "0x10"),
        ("HTTP_PORT", " "),
        ("BASE_PORT", "9" * 5000),
        ("SET", "\n\n"),
        ("SET", "=\n="),
        ("IGNORE", "="),
        ("MACHINE", ":"),
        ("MACHINE", "H200:999999999"),
        ("MACHINE", "H200:²"),
        ("STATE_DIR", "\n"),
        ("STATE_DIR", "x" * 5000),
        ("PYTHON", "/"),
        ("ENGINE", "AUTO"),
        ("CONFIG_DIR", "/proc/self"),
        ("CONFIG_DIR", "/nowhere"),
        ("TARGET", "/proc/self/environ"),
        ("LOG_DIR", "/dev/null/x"),
    ],
)
def test_variables_that_hurt(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHER_TARGET", "sim")
    monkeypatch.setenv(f"LAUNCHER_{name}", value)
    arguments: dict[str, Any] = {} if name != "MACHINE" else {"machine": value}
    plan_or_findings(**arguments)


def test_a_bomb_by_set() -> None:
    bomb = (
        "engine.config.x={a: &a [1,1,1,1,1,1,1,1,1], "
        + ", ".join(
            f"{chr(98 + level)}: &{chr(98 + level)} [{','.join(['*' + chr(97 + level)] * 9)}]"
            for level in range(9)
        )
        + "}"
    )
    assert plan_or_findings(target="sim", set=[bomb]) == "set-syntax"
    # A star or an ampersand alone is text.
    assert plan_or_findings(target="sim", set=["title=*x & y"]) == "plan"


def test_variables_that_are_not_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHER_TARGET", "sim")
    monkeypatch.setenv("LAUNCHER_SET", os.fsdecode(b"name=\xff\xfe"))
    plan_or_findings()
