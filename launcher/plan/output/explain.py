"""Where each value of a target came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from launcher.plan.output.table import columns
from launcher.target.resolve import Resolved


def render(resolved: Resolved) -> str:
    """One line for each value: its path, what it is, and the layer, variable or flag that set it."""
    document = resolved.target.model_dump(mode="json")
    rows = [(".".join(path), _short(value), resolved.origin(*path)) for path, value in _leaves(document, ())]
    written = {path for path, _ in _leaves(document, ())}
    for path, where in resolved.origins.items():
        # A null in a higher layer removed what a lower one had set: say who.
        if path and path not in written and not _present(resolved.document, path):
            rows.append((".".join(path), "(removed)", where))
    return "\n".join(columns(("value", "is", "set by"), sorted(rows))) + "\n"


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif (
        isinstance(value, list)
        and value
        and not any(isinstance(item, dict) for item in value)
        and path == ("notes",)
    ):
        for index, item in enumerate(value):
            yield (*path, str(index)), item
    else:
        yield path, value


def _present(document: Any, path: tuple[str, ...]) -> bool:
    here = document
    for part in path:
        if isinstance(here, list):
            return True
        if not isinstance(here, dict) or part not in here:
            return False
        here = here[part]
    return True


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
