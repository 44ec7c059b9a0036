"""Prometheus text pages of many processes, merged into one valid page. Pure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4). It wants every family
once, with all its samples in one group; the pages of several workers put together would repeat each family. One bad
line makes Prometheus refuse the whole page, so that what cannot be understood is left out here, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_STRING = r'"[^"\\\n]*(?:\\[\\"n][^"\\\n]*)*"'
_PAIR = rf"[a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*{_STRING}"
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[iI]nf|[nN]a[nN])"
_SERIES = rf"({_NAME})[ \t]*(?:\{{[ \t]*((?:{_PAIR}[ \t]*(?:,[ \t]*{_PAIR}[ \t]*)*,?)?)[ \t]*\}})?"
_HEAD = re.compile(_SERIES)
_VALUE = re.compile(_NUMBER)
_SAMPLE = re.compile(rf"({_SERIES})[ \t]*(?<=[ \t}}])({_NUMBER}(?:[ \t]+-?[0-9]+)?)[ \t]*(?:#.*)?")
_LABEL = re.compile(rf"([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*({_STRING})")
_COMMENT = re.compile(rf"#[ \t]+(HELP|TYPE)[ \t]+({_NAME})(?:[ \t]+(.*))?")
_BARE_BACKSLASH = re.compile(r"\\(?![\\n])")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
_TYPES = ("counter", "gauge", "histogram", "summary")
_CACHED = 1024
"""Longest line, in characters, that is worth remembering."""
RESERVED = "launcher_"
"""Families of this prefix are the launcher's own; a child's are left out."""


class NotMetrics(ValueError):
    """The page holds nothing that is a sample; the text says what it begins with."""


@dataclass(slots=True)
class Family:
    """One family of one process: samples are (name, labels without braces, value with timestamp if any)."""

    name: str
    type: str = "untyped"
    help: str = ""
    samples: list[tuple[str, str, str]] = field(default_factory=list)

    def names(self) -> tuple[str, ...]:
        """Every sample name that belongs to the family."""
        return (self.name, *(self.name + suffix for suffix in _SUFFIXES.get(self.type, ())))


@dataclass(frozen=True, slots=True)
class Page:
    """What one process exports."""

    families: Mapping[str, Family]
    lines: int
    """Samples understood."""
    bad: int
    """Lines left out: not understood, or a series or a label given twice."""

    def values(self, name: str) -> list[tuple[dict[str, str], float]]:
        """The samples of that name: labels and value. For the few figures that the launcher itself reads."""
        family = self.families.get(name)
        for suffix in ("_bucket", "_sum", "_count"):
            if family is None:
                family = self.families.get(name.removesuffix(suffix))
        found = []
        for sample, labels, value in family.samples if family else ():
            if sample == name:
                pairs = {key: text[1:-1] for key, text in _LABEL.findall(labels)}
                found.append((pairs, float(value.split()[0])))
        return found

    def total(self, name: str) -> float | None:
        """The sum over all series of that name; None where there is none."""
        found = self.values(name)
        return sum(value for _, value in found) if found else None


def parse(text: str) -> Page:
    """The page of one process. Raises NotMetrics where no line of it is a sample."""
    families: dict[str, Family] = {}
    owner: dict[str, Family] = {}
    seen: set[tuple[str, str]] = set()
    lines = bad = 0
    first_bad = ""
    for line in text.split("\n"):
        if not line or line.isspace():
            continue
        if line[0] == "#":
            if (found := _COMMENT.fullmatch(line)) is not None:
                _describe(families, owner, *found.groups(""))
            continue
        series, value = _split(line)
        if series is None or series in seen:
            bad += 1
            first_bad = first_bad or line
            continue
        seen.add(series)
        lines += 1
        name, labels = series
        family = owner.get(name)
        if family is None:
            family = _adopt(families, owner, name)
        family.samples.append((name, labels, value))
    if bad and not lines:
        raise NotMetrics(f"not a metrics page, it begins with {first_bad[:60]!r}")
    return Page({name: family for name, family in families.items() if family.samples}, lines, bad)


def _split(line: str) -> tuple[tuple[str, str] | None, str]:
    """Name and labels, and the value with a timestamp if any; None where the line is no sample."""
    head, _, value = line.rpartition(" ")
    if len(head) < _CACHED and _VALUE.fullmatch(value) and (series := _series(head)) is not None:
        return series, value
    found = _SAMPLE.fullmatch(line.rstrip("\r"))
    return (None, "") if found is None else (_series.__wrapped__(found[1]), found[4])


@lru_cache(maxsize=1 << 14)
def _series(head: str) -> tuple[str, str] | None:
    """Name and labels. Remembered: from one scrape to the next only the values change."""
    found = _HEAD.fullmatch(head)
    if found is None:
        return None
    name, labels = found.groups("")
    names = [label for label, _ in _LABEL.findall(labels)]
    return (name, labels) if len(names) == len(set(names)) else None


def _describe(families: dict[str, Family], owner: dict[str, Family], word: str, name: str, rest: str) -> None:
    family = families.setdefault(name, Family(name))
    owner.setdefault(name, family)
    if word == "HELP":
        family.help = family.help or _BARE_BACKSLASH.sub(r"\\\\", rest)
    elif family.type == "untyped" and not family.samples:
        family.type = rest.strip() if rest.strip() in _TYPES else "untyped"
        for each in family.names():
            owner.setdefault(each, family)


def _adopt(families: dict[str, Family], owner: dict[str, Family], name: str) -> Family:
    """The family of a sample that no comment announced. OpenMetrics announces a counter without its `_total`."""
    stem = families.get(name.removesuffix("_total"))
    if stem is not None and stem.type == "counter" and not stem.samples:
        del families[stem.name]
        owner.pop(stem.name, None)
        family = Family(name, "counter", stem.help)
    else:
        family = Family(name)
    families[name] = owner[name] = family
    return family


@dataclass(frozen=True, slots=True)
class Merged:
    """One page of many."""

    text: str
    dropped: Mapping[int, list[str]]
    """Index of the page to the families left out of it: another page, or the launcher, has them with another type."""


def merge(pages: Iterable[tuple[Mapping[str, str], Page]]) -> Merged:
    """All pages as one, every sample of a page under that page's added labels.

    A label of the child that an added one would hide comes out as `exported_NAME`, as Prometheus does it without
    `honor_labels`. The first page that has a family decides its type.
    """
    whole: dict[str, tuple[Family, list[str]]] = {}
    owner: dict[str, str] = {}
    dropped: dict[int, list[str]] = {}
    for index, (added, page) in enumerate(pages):
        prefix = ",".join(f'{name}="{_escape(value)}"' for name, value in added.items())
        renamed: dict[str, str] = {}
        for name, family in page.families.items():
            known = whole.get(name)
            if (
                name.startswith(RESERVED)
                or (known is not None and known[0].type != family.type)
                or any(owner.get(each, name) != name for each in family.names())
            ):
                dropped.setdefault(index, []).append(name)
                continue
            owner.update(dict.fromkeys(family.names(), name))
            if known is None:
                known = whole[name] = (Family(name, family.type, family.help), [])
            known[0].help = known[0].help or family.help
            lines = known[1]
            for sample, labels, value in family.samples:
                if labels not in renamed:
                    renamed[labels] = _relabel(labels, added)
                lines.append(f"{sample}{{{prefix}{renamed[labels]}}} {value}\n")
    return Merged("".join(_blocks(whole)), dropped)


def _blocks(whole: Mapping[str, tuple[Family, list[str]]]) -> Iterable[str]:
    for name, (family, lines) in whole.items():
        if family.help:
            yield f"# HELP {name} {family.help}\n"
        yield f"# TYPE {name} {family.type}\n"
        yield from lines


def _relabel(labels: str, added: Mapping[str, str]) -> str:
    """The child's labels with a leading comma, those renamed that an added label would hide."""
    if not labels:
        return ""
    pairs = _LABEL.findall(labels)
    taken = {name for name, _ in pairs} | added.keys()
    result = []
    for name, value in pairs:
        if name in added:
            while name in taken:
                name = f"exported_{name}"
            taken.add(name)
        result.append(f",{name}={value}")
    return "".join(result)


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
