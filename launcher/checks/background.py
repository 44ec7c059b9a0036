"""What lies behind a finding's code, for `launcher explain`: a check's docstring, of the rest a few words here."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import launcher
from launcher.checks import registry

OTHERS = {
    "check-failed": "A check itself failed. What it would have found is not known, so that counts as an error: nothing "
    "is passed in silence. It is a fault of the launcher; report it with the text of the finding.",
    "flag-renamed": "The installed release knows a flag by another name with the same meaning. The launcher passes it "
    "under that name and says so, so that one target runs on several releases.",
    "command-line": "The command line has a word that the command does not know, or lacks one that it needs. Flags are "
    "not abbreviated: a shortened name that is unique today may mean two things tomorrow.",
    "setting-unknown": "An environment variable starts with LAUNCHER_ and names no setting. A misspelt one would "
    "otherwise be without effect in silence. Those that Kubernetes makes for a Service named launcher are left alone.",
    "setting-value": "A setting, given as a flag or a LAUNCHER_ variable, has a value that it cannot take.",
    "set-syntax": "--set takes PATH=VALUE: a path into the target, and a value in YAML's notation.",
    "set-path": "--set names a place below a plain value: that value would have to be a group of keys for it to exist.",
    "target-missing": "No target was named. A target says what to serve and on what; launcher targets lists them.",
    "target-unknown": "There is no target of that name, and no file at that path. launcher targets lists all.",
    "target-file": "The target file cannot be used. Targets are stricter than YAML: no duplicate keys, no aliases, no "
    "tags, no infinite or huge numbers, at most 256 KiB, a regular file in UTF-8.",
    "target-unknown-key": "A key of the target is not known. It would otherwise be without effect in silence.",
    "target-missing-key": "The target lacks a key that it must have; nothing sensible can be assumed in its place.",
    "target-value": "A value of the target has the wrong type or lies outside of what it can be.",
    "machine-unknown": "--machine names a GPU product that the launcher does not know, so it cannot plan for it.",
    "machine-not-here": "--machine imagines a machine to plan for; nothing can be started there.",
    "ports-exhausted": "There is no free block of 500 internal ports between the base port and the kernel's ephemeral "
    "range (at most 32767, because Dynamo reads its system port as a signed 16-bit number).",
    "state-dir-long": "The run's folder holds unix sockets, whose paths Linux limits to 107 bytes.",
    "ignore-unknown": "--ignore names a code that no check has: the error that was meant would still stop the start.",
    "ignore-refused": "--ignore names an error with which nothing could be planned or started; it has to be corrected.",
    "view-plain": "A live view was asked for, and standard output is no terminal that can show one.",
}
"""Codes that no check has: the command line's own, and the target file's."""


def codes() -> list[str]:
    """Every code that can be explained."""
    return sorted({*registry.codes(), *OTHERS, *_from_source()})


def background(code: str) -> str | None:
    """What lies behind a finding of this code, or None where there is no such code."""
    return registry.background(code) or OTHERS.get(code) or _from_source().get(code)


@functools.cache
def _from_source() -> dict[str, str]:
    """Codes of the other commands' own findings, with what their source says around them.

    A finding of `render`, `download` or `bench` is made where its fault is met: the function's and the module's
    docstring are its background, and nobody has to repeat them here. Reads the package's source, some 100 ms.
    """
    found: dict[str, str] = {}
    root = Path(launcher.__file__).parent
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if 'code="' not in text or path.is_relative_to(root / "checks"):
            continue
        module = ast.parse(text)
        for code, words in _findings_of(module, ast.get_docstring(module) or ""):
            found.setdefault(code, words)
    return found


def _findings_of(node: ast.AST, around: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        here = around
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own = ast.get_docstring(child)
            here = f"{own}\n\n{around}" if own and own not in around else around
        if isinstance(child, ast.Call):
            given = {word.arg: _text(word.value) for word in child.keywords}
            if code := given.get("code"):
                why, fix = given.get("why"), given.get("fix")
                said = [
                    f"{label}: {text}."
                    for label, text in (("Why it matters", why), ("What to do", fix))
                    if text
                ]
                yield code, "\n\n".join([*said, around])
        yield from _findings_of(child, here)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
