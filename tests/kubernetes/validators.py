"""Validators that know Kubernetes without a cluster: schemas, the operator's CRD, and what neither says."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import kubernetes_validate.utils
import pytest
import yaml

from tests.kubernetes.manifests import ROOT, Document, pod_specs

CRD = Path(
    os.environ.get(
        "LAUNCHER_TEST_DGD_CRD", ROOT.parent / "shared" / "kubernetes" / "dynamographdeployments.crd.yaml"
    )
)
KUBERNETES = ("1.29", "1.33", "1.37")
"""Releases whose schemas the core kinds must satisfy: an old one, a current one, the newest known."""
CORE = ("v1", "apps/v1", "batch/v1", "policy/v1")

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SERVICE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
QUANTITY = re.compile(r"(\d+(\.\d+)?|\.\d+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


# The schemas of one release are one large file, which the package reads again for each document.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def schema_errors(document: Document, release: str) -> list[str]:
    """What that Kubernetes release's strict schema says; for a graph, about each pod that it will become."""
    if document["apiVersion"] in CORE:
        checked = [document]
    else:
        checked = [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            for name, _, spec in pod_specs(document)
        ]
    errors = []
    for item in checked:
        try:
            kubernetes_validate.validate(item, release, strict=True)
        except kubernetes_validate.ValidationError as error:
            errors.append(f"{item['kind']} {list(error.path)}: {error.message}")
    return errors


@functools.cache
def graph_validator() -> Any:
    """The v1beta1 schema of the operator's CRD, strict as `kubectl apply` is; skips where the file is absent."""
    if not CRD.is_file():
        pytest.skip(
            f"no CRD at {CRD}; name the operator's dynamographdeployments CRD in LAUNCHER_TEST_DGD_CRD"
        )
    crd = yaml.load(CRD.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = [version for version in crd["spec"]["versions"] if version["name"] == "v1beta1"]
    schema = _strict(version["schema"]["openAPIV3Schema"])
    extended = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
        jsonschema.Draft202012Validator,
        {"x-kubernetes-list-map-keys": _unique_keys, "x-kubernetes-validations": _rules},
    )
    extended.check_schema(schema)
    return extended(schema)


def graph_errors(document: Document) -> list[str]:
    """What the CRD says about a DynamoGraphDeployment."""
    return [f"{list(error.path)}: {error.message}" for error in graph_validator().iter_errors(document)]


def _strict(schema: Any) -> Any:
    """An OpenAPI schema of a CRD as JSON schema in which an unknown field is an error."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _strict(value) for key, value in schema.items() if key not in ("description", "format")}
    if "properties" in result and isinstance(result["properties"], dict) and result.get("type") == "object":
        result["properties"] = {key: _strict(value) for key, value in schema["properties"].items()}
        kept = result.get("x-kubernetes-preserve-unknown-fields")
        if not kept and "additionalProperties" not in result:
            result["additionalProperties"] = False
    if result.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    if result.pop("nullable", False) and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    return result


def _unique_keys(
    validator: Any, keys: list[str], items: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    seen = set()
    for item in items if isinstance(items, list) else []:
        identity = tuple(json.dumps(item.get(key)) for key in keys)
        if identity in seen:
            yield jsonschema.ValidationError(f"two entries with {dict(zip(keys, identity, strict=True))}")
        seen.add(identity)


RULES: dict[str, Callable[[Any], bool]] = {
    "component names must be unique case-insensitively": lambda components: (
        len({component.get("name", "").lower() for component in components}) == len(components)
    ),
    "at most one component may have type epp": lambda components: (
        sum(component.get("type") == "epp" for component in components) <= 1
    ),
    "eppConfig may only be set when type is epp": lambda component: "eppConfig" not in component,
    "minAvailable must be less than or equal to replicas unless replicas is 0": lambda component: (
        component.get("minAvailable", 0) <= component.get("replicas", 1)
    ),
    "minAvailable is immutable after creation": lambda component: True,
    "spec.restart must be unset on create; set spec.restart.id after creation to request a restart": (
        lambda spec: "restart" not in spec
    ),
    "podTemplate backend annotation must be mp or ray, case-insensitively": lambda annotations: (
        annotations.get("nvidia.com/vllm-distributed-executor-backend", "mp") in ("mp", "ray")
    ),
}
"""The CRD's CEL rules that our documents meet, by message; one that is not here fails the test."""


def _rules(
    validator: Any, rules: list[Document], value: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    for rule in rules:
        message = str(rule.get("message", rule["rule"]))
        if "image" in rule["rule"]:
            fine = all(item.get("image") for item in (value if isinstance(value, list) else [value]))
        elif message in RULES:
            fine = RULES[message](value)
        else:
            fine = False
        if not fine:
            yield jsonschema.ValidationError(message)


# What no schema says -------------------------------------------------------------------------------


def api_errors(found: list[Document]) -> list[str]:
    """What the API server or the kubelet would refuse although every schema is satisfied."""
    errors = []
    for document in found:
        where = f"{document['kind']}/{document['metadata']['name']}"
        errors += [f"{where}: {error}" for error in _names(document)]
        for name, metadata, spec in pod_specs(document):
            errors += [f"{where} {name}: {error}" for error in _labels(metadata.get("labels", {}))]
            errors += [f"{where} {name}: {error}" for error in _pod(spec)]
        if document["kind"] == "Deployment":
            wants = document["spec"]["selector"]["matchLabels"].items()
            if not wants <= document["spec"]["template"]["metadata"]["labels"].items():
                errors.append(f"{where}: the selector does not match the template")
    return errors


def _names(document: Document) -> Iterator[str]:
    metadata = document["metadata"]
    pattern = SERVICE_NAME if document["kind"] == "Service" else DNS_LABEL
    if not pattern.fullmatch(metadata["name"]):
        yield f"name {metadata['name']!r}"
    if "namespace" in metadata and not DNS_LABEL.fullmatch(metadata["namespace"]):
        yield f"namespace {metadata['namespace']!r}"
    yield from _labels(metadata.get("labels", {}))
    if document["kind"] == "Service":
        for port in document["spec"]["ports"]:
            if isinstance(port["targetPort"], str) and len(port["targetPort"]) > 15:
                yield f"target port {port['targetPort']!r}"


def _labels(labels: Document) -> Iterator[str]:
    for key, value in labels.items():
        if not LABEL_KEY.fullmatch(key) or not isinstance(value, str) or not LABEL_VALUE.fullmatch(value):
            yield f"label {key}={value!r}"


def _pod(spec: Document) -> Iterator[str]:
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    if len(set(volumes)) != len(volumes):
        yield "two volumes of one name"
    used = set()
    for container in spec["containers"]:
        if not DNS_LABEL.fullmatch(container["name"]):
            yield f"container name {container['name']!r}"
        names = [port["name"] for port in container.get("ports", [])]
        yield from (
            f"port name {name!r}" for name in names if len(name) > 15 or not PORT_NAME.fullmatch(name)
        )
        if len(set(names)) != len(names):
            yield "two ports of one name"
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            port = container.get(probe, {}).get("httpGet", {}).get("port")
            if isinstance(port, str) and port not in names:
                yield f"{probe} asks port {port!r}, which the container does not name"
        yield from _env(container.get("env", []))
        yield from _resources(container.get("resources", {}))
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        if len(set(paths)) != len(paths):
            yield "two mounts at one path"
        used |= {mount["name"] for mount in container.get("volumeMounts", [])}
    if used != set(volumes):
        yield f"volumes {sorted(volumes)} but mounts of {sorted(used)}"


def _env(entries: list[Document]) -> Iterator[str]:
    names = [entry["name"] for entry in entries]
    if len(set(names)) != len(names):
        yield "a variable stands twice"
    for entry in entries:
        if not ENV_NAME.fullmatch(entry["name"]):
            yield f"variable name {entry['name']!r}"
        if ("value" in entry) == ("valueFrom" in entry) or not isinstance(entry.get("value", ""), str):
            yield f"variable {entry['name']} is no text"


def _resources(resources: Document) -> Iterator[str]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name, value in [*requests.items(), *limits.items()]:
        if not isinstance(value, str) or not QUANTITY.fullmatch(value):
            yield f"quantity {name}={value!r}"
    if requests.get("nvidia.com/gpu") != limits.get("nvidia.com/gpu"):
        yield "GPUs requested and limited differ"
