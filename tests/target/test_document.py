"""YAML that remembers where it was written, and refuses what is no plain data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.findings import LauncherError
from launcher.target import document


def error(text: str) -> str:
    with pytest.raises(LauncherError) as caught:
        document.parse(text, "t.yaml")
    (finding,) = caught.value.findings
    return finding.line()


def test_every_value_knows_its_line() -> None:
    value, origins = document.parse("a: 1\nb:\n  c: [x, y]\n  d: true\n", "t.yaml")
    assert value == {"a": 1, "b": {"c": ["x", "y"], "d": True}}
    assert origins[("a",)] == "t.yaml:1"
    assert origins[("b",)] == "t.yaml:2"
    assert origins[("b", "c", "1")] == "t.yaml:3"
    assert document.origin(("b", "d", "deeper"), origins) == "t.yaml:4"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\na: 2\n", "t.yaml:2", "stands twice"),
        ("a: &x [1]\nb: *x\n", "t.yaml:2", "alias"),
        ("a:\n\tb: 1\n", "t.yaml:2", "not valid YAML"),
        ("a: .nan\n", "t.yaml:1", "not a finite number"),
        ("a: -.inf\n", "t.yaml:1", "not a finite number"),
        ("a: 99999999999999999999999\n", "t.yaml:1", "too large"),
        ("a: !!python/object:os.system x\n", "t.yaml:1", "tag"),
        ("<<: {a: 1}\n", "t.yaml:1", "extends"),
        ("[1, 2]: 3\n", "t.yaml:1", "plain name"),
        ("- 1\n- 2\n", "t.yaml:1", "not a mapping"),
        ("a: [1\n", "t.yaml:2", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "t.yaml", "not valid YAML"),
        ("a: " + "{a: " * 40 + "1" + "}" * 40, "t.yaml:1", "nested"),
        ("a: " + "[" * 5000, "t.yaml", ""),
    ],
)
def test_refused_with_its_place(text: str, place: str, words: str) -> None:
    line = error(text)
    assert place in line
    assert words in line


def test_a_laughing_file_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "alias" in error("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("", None),
        ("[1, 2]", [1, 2]),
        ("{a: b}", {"a": "b"}),
        ("plain text", "plain text"),
        ("32G", "32G"),
        ("a: b: c", "a: b: c"),
        ("*x", "*x"),
        ("0123", "0123"),
        ("1:30", "1:30"),
        ("1_000", 1000),
        ("0x10", 16),
        ('"8"', "8"),
    ],
)
def test_values_of_the_command_line(text: str, value: object) -> None:
    found = document.parse_value(text, "--set")
    assert (found, type(found)) == (value, type(value))


def test_merging_layers() -> None:
    base, base_origins = document.parse("a: {x: 1, y: 2}\nb: [1]\nnotes: [one]\n", "base")
    over, over_origins = document.parse("a: {y: 3, x: null}\nb: [2]\nnotes: [two]\n", "over")
    merged, origins = document.merge(base, over, base_origins, over_origins)
    assert merged == {"a": {"y": 3}, "b": [2], "notes": ["one", "two"]}
    assert origins[("a", "y")] == "over:1"
    assert origins[("a", "x")] == "over:1"
    assert (origins[("notes", "0")], origins[("notes", "1")]) == ("base:3", "over:3")
    assert base == {"a": {"x": 1, "y": 2}, "b": [1], "notes": ["one"]}


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "big", "binary", "loop"])
def test_files_that_are_no_target(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "big":
        path.write_text("a: " + "x" * document.MAX_BYTES)
    elif kind == "binary":
        path.write_bytes(b"a: \xff\xfe")
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(LauncherError) as caught:
        document.read_text(path, "t.yaml")
    assert "t.yaml" in caught.value.findings[0].line()
