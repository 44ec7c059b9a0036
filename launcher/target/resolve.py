"""A target by name becomes a checked value, with the origin of each of its parts."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from launcher.findings import Finding, LauncherError, did_you_mean, nearest
from launcher.target import catalog, document, overrides, voice
from launcher.target.document import Origins
from launcher.target.overrides import Override
from launcher.target.schema import Target


@dataclass(frozen=True, slots=True)
class Resolved:
    """A target with its history."""

    target: Target
    document: dict[str, Any]
    """The merged document that the target was read from: only what somebody wrote."""
    origins: Origins

    def origin(self, *path: str) -> str:
        """Where the value at `path` was set; `default` where nobody set it."""
        if path in self.origins:
            return self.origins[path]
        here: Any = self.document
        for part in path:
            if not isinstance(here, dict) or part not in here:
                return "default"
            here = here[part]
        return document.origin(path, self.origins) or "default"


def resolve(name: str, changes: Sequence[Override] = (), folder: Path | None = None) -> Resolved:
    """Load, layer, override and validate a target.

    Raises LauncherError with one finding per fault, each with its place and the nearest right value.
    """
    doc, origins = catalog.load(name, folder)
    doc, origins = overrides.apply(doc, origins, list(changes))
    try:
        # JSON mode: strict types, yet lists stay acceptable where the schema has a sequence.
        target = Target.model_validate_json(json.dumps(doc, allow_nan=False))
    except ValidationError as error:
        raise LauncherError(list(_findings(error, doc, origins))) from None
    except (ValueError, RecursionError) as error:
        raise LauncherError(Finding(code="target-file", what=f"cannot be read as data: {error}")) from None
    return Resolved(target, doc, origins)


def _findings(error: ValidationError, doc: dict[str, Any], origins: Origins) -> Iterator[Finding]:
    seen: set[tuple[str, ...]] = set()
    for fault in error.errors(include_url=False, include_context=True):
        path = _document_path(fault["loc"], doc)
        if path in seen:
            continue  # The members of a union each complain about the one value.
        seen.add(path)
        where = document.origin(path, origins)
        dotted = ".".join(path)
        if fault["type"] == "extra_forbidden":
            known = list(_fields_at(Target, path[:-1]))
            yield Finding(
                code="target-unknown-key",
                what=f"{dotted} is no key of a target",
                where=where,
                fix=did_you_mean(path[-1], known),
            )
        elif fault["type"] == "missing":
            yield Finding(code="target-missing-key", what=f"{dotted} is missing", where=where)
        else:
            yield Finding(
                code="target-value",
                what=f"{dotted} is {voice.shown(fault.get('input'))}: "
                + (voice.NAME if path == ("name",) else voice.predicate(fault)),
                where=where,
                why=voice.BASE_PORT if path == ("network", "base_port") and "ctx" in fault else "",
                fix=_fix(fault, path),
            )


def _fix(fault: Any, path: tuple[str, ...]) -> str:
    if fault["type"] == "literal_error":
        allowed = [part.strip("' ") for part in fault["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        close = nearest(str(fault.get("input")), allowed)
        return f"did you mean {close!r}?" if close else ""
    if fault["type"] == "string_pattern_mismatch" and len(path) > 1 and path[-2] == "args":
        return "a flag is named without its leading dashes, in lower case"
    if path == ("name",):
        return "name the file so, such as my-target.yaml, or give it a `name`"
    return voice.meant(fault)


def _document_path(loc: tuple[int | str, ...], doc: Any) -> tuple[str, ...]:
    """The path in the document: pydantic's own also names union members (`list[any]`) and keys (`[key]`)."""
    parts: list[str] = []
    here = doc
    for part in loc:
        text = str(part)
        if isinstance(here, dict):
            if text not in here and (text == "[key]" or "[" in text):
                continue
            here = here.get(text)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        else:
            continue  # below a plain value there are only members of a union
        parts.append(text)
    return tuple(parts)


def _fields_at(model: type[BaseModel], path: Sequence[str]) -> Iterator[str]:
    """Names of the fields that the schema has at a path; nothing where it is no fixed set."""
    found: type[BaseModel] | None = model
    for part in path:
        field = found.model_fields.get(part) if found is not None else None
        found = next(_models(field.annotation), None) if field is not None else None
    if found is not None:
        yield from found.model_fields


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        for member in typing.get_args(annotation):
            yield from _models(member)
