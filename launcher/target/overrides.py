"""`--set PATH=VALUE` and its siblings: single values laid over a target's document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launcher.findings import Finding, LauncherError, short
from launcher.target import document
from launcher.target.document import Origins

LONGEST_PATH = 400
"""Characters; the longest that a target has is a variable's name, some 150."""


@dataclass(frozen=True, slots=True)
class Override:
    """One value for one place of the target."""

    path: tuple[str, ...]
    value: Any
    origin: str
    """Who asked: `--set`, `--http-port`, `LAUNCHER_HTTP_PORT`."""


def parse(assignment: str, origin: str) -> Override:
    """`workers.prefill.count=2` as an override. Raises LauncherError where it is not PATH=VALUE.

    Flag names hold no dots, so a dot always goes one level down.
    """
    path, equals, text = assignment.partition("=")
    parts = tuple(path.strip().split("."))
    if len(path) > LONGEST_PATH or len(parts) > document.MAX_DEPTH:
        raise LauncherError(
            Finding(
                code="set-path",
                what=f"{short(path)!r} is longer or deeper than any place of a target",
                where=origin,
                fix="for example --set workers.prefill.count=2",
            )
        )
    if not equals or not all(parts):
        raise LauncherError(
            Finding(
                code="set-syntax",
                what=f"{short(assignment)!r} is not PATH=VALUE",
                where=origin,
                fix="for example --set workers.prefill.count=2",
            )
        )
    return Override(parts, document.parse_value(text, f"{origin} {path}"), f"{origin} {path}")


def apply(doc: dict[str, Any], origins: Origins, overrides: list[Override]) -> tuple[dict[str, Any], Origins]:
    """The document with each override laid on it in turn; the inputs stay as they are."""
    for override in overrides:
        here: Any = doc
        for depth, part in enumerate(override.path[:-1]):
            here = here.get(part) if isinstance(here, dict) else None
            if here is not None and not isinstance(here, dict):
                above = ".".join(override.path[: depth + 1])
                raise LauncherError(
                    Finding(
                        code="set-path",
                        what=f"{'.'.join(override.path)} goes below {above}, which is a plain value",
                        where=override.origin,
                    )
                )
        over: Any = override.value
        for part in reversed(override.path):
            over = {part: over}
        new_origins: Origins = {}
        _mark(over, (), new_origins, override.origin)
        doc, origins = document.merge(doc, over, origins, new_origins)
    return doc, origins


def _mark(value: Any, path: tuple[str, ...], origins: Origins, origin: str) -> None:
    if path:
        origins[path] = origin
    if isinstance(value, dict):
        for key, item in value.items():
            _mark(item, (*path, key), origins, origin)
