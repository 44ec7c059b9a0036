"""What the tests of manifests share: every rendered file and its documents."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from launcher.kubernetes.options import Options
from launcher.kubernetes.render import render_all
from launcher.kubernetes.subject import Wanted
from launcher.target import catalog
from launcher.target.resolve import resolve

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "configs" / "deploy"
TARGETS = catalog.names()

Document = dict[str, Any]


def wanted(name: str, options: Options | None = None, **changes: Any) -> Wanted:
    """The target as `launcher render --target NAME` wants it."""
    resolved = resolve(name)
    return Wanted(resolved, resolved.target.engine.kind, options or Options(), **changes)


@functools.cache
def rendered(name: str) -> Mapping[str, str]:
    """File name to text of each manifest of a target."""
    return dict(render_all(wanted(name)))


def files() -> list[tuple[str, str]]:
    """Target and file name of every manifest, for parametrised tests."""
    return [(name, file) for name in TARGETS for file in rendered(name)]


def load(text: str) -> list[Document]:
    """The documents of a stream, free to be changed."""
    return copy.deepcopy(_loaded(text))


@functools.cache
def _loaded(text: str) -> list[Document]:
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def documents(name: str, file: str) -> list[Document]:
    """The documents of a target's manifest, free to be changed."""
    return load(rendered(name)[file])


def kind(found: list[Document], name: str) -> Document:
    """The one document of that kind."""
    (document,) = [document for document in found if document["kind"] == name]
    return document


def pod_specs(document: Document) -> Iterator[tuple[str, Document, Document]]:
    """Where, metadata and spec of each pod (template) in a document."""
    spec = document.get("spec", {})
    if document["kind"] == "Pod":
        yield document["metadata"]["name"], document["metadata"], spec
    elif document["kind"] in ("Deployment", "Job"):
        template = spec["template"]
        yield document["metadata"]["name"], template["metadata"], template["spec"]
    elif document["kind"] == "DynamoGraphDeployment":
        for component in spec["components"]:
            template = component["podTemplate"]
            yield component["name"], template["metadata"], template["spec"]
