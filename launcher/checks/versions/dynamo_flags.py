"""Check the flags of Dynamo's own parsers, without running them.

Against what `scripts/dynamo_args.py` read from the parsers of each release on record (`engines/data`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from launcher.checks.versions.vllm_flags import DATA, Problem
from launcher.findings import nearest

OWN = ("dynamo.frontend", "dynamo.mocker", "dynamo.trtllm", "dynamo.vllm")
Flags = dict[str, dict[str, Any]]


class Parsed(NamedTuple):
    """A command line, as a module's parser takes it apart."""

    problems: list[Problem]
    used: dict[str, dict[str, Any]]
    """Flags that the module knows, with what is on record for them."""
    left_over: list[str]
    """What it does not know; of dynamo.vllm it goes on to vLLM."""


def recorded() -> list[str]:
    """The Dynamo releases on record."""
    return sorted(file.stem.rpartition("-")[2] for file in DATA.glob("dynamo-args-*.json"))


@functools.cache
def _record(release: str) -> dict[str, Flags]:
    data: dict[str, dict[str, Flags]] = json.loads(
        (DATA / f"dynamo-args-{release}.json").read_text(encoding="utf-8")
    )
    return data["modules"]


def flags(module: str, release: str) -> Flags:
    """The flags of a module in a release on record."""
    return _record(release)[module]


def parse(module: str, argv: Sequence[str], release: str) -> Parsed:
    """Take a command line apart as `module` of `release` does."""
    known = flags(module, release)
    hands_on = module == "dynamo.vllm"
    result = Parsed([], {}, [])
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, attached = word.partition("=")
        entry = known.get(name)
        if entry is None:
            result.left_over.append(word)
            if word.startswith("--") and not hands_on:
                near = nearest(name, known)
                result.problems.append(Problem(name, f"unknown flag {name}", near, unknown=True))
                while rest and not rest[0].startswith("--"):
                    result.left_over.append(rest.pop(0))
            elif not hands_on:
                result.problems.append(Problem(word, f"{word!r} belongs to no flag"))
            continue
        result.used[name] = entry
        values = [attached] if equals else list(_take(rest, entry))
        result.problems.extend(_check(name, entry, values))
    return result


def _take(rest: list[str], entry: dict[str, Any]) -> Iterator[str]:
    nargs = entry.get("nargs", 1)
    most = {"?": 1, "*": len(rest), "+": len(rest)}.get(nargs, nargs if isinstance(nargs, int) else 1)
    while rest and most > 0 and not rest[0].startswith("--"):
        yield rest.pop(0)
        most -= 1


def _check(flag: str, entry: dict[str, Any], values: list[str]) -> Iterator[Problem]:
    nargs = entry.get("nargs", 1)
    if nargs == 0:
        if values:
            yield Problem(flag, f"{flag} takes no value, got {values[0]!r}")
        return
    if not values:
        if nargs not in ("?", "*"):
            yield Problem(flag, f"{flag} lacks its value")
        return
    for value in values:
        choices = entry.get("choices")
        if choices and value not in choices:
            near = nearest(value, choices)
            yield Problem(flag, f"{flag}: {value!r} is not one of its values", near)
        convert = {"int": int, "float": float}.get(entry.get("type", ""))
        if convert is not None:
            try:
                convert(value)
            except ValueError:
                article = "an" if entry["type"] == "int" else "a"
                yield Problem(flag, f"{flag} wants {article} {entry['type']}, got {value!r}")


def releases_with(module: str, flag: str) -> list[str]:
    """The releases on record whose module knows the flag."""
    return [release for release in recorded() if flag in flags(module, release)]
