"""Questions about a target that several rules ask."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.plan.model import Role
from launcher.target.resolve import Resolved
from launcher.target.schema import Target, Workers

Place = tuple[str, ...]
_HUMAN = re.compile(r"^(\d+(?:\.\d+)?)([kKmMgGtT]?)$")
# vLLM's own rule: a small letter is a power of 1000, a capital one of 1024.
_SCALE = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}


def is_gpt_oss(target: Target) -> bool:
    """Whether the model is one of the gpt-oss family, whose head counts, format and known limits the rules know."""
    return "gpt-oss" in target.model.id.lower()


def is_real(target: Target) -> bool:
    """Whether the workers compute a model."""
    return target.engine.kind in ("vllm", "trtllm")


def within(resolved: Resolved, place: Place) -> Mapping[str, Any]:
    """The mapping that the target's document has at a place; empty where there is none."""
    here: Any = resolved.document
    for part in place:
        here = here.get(part) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}


def value_at(resolved: Resolved, place: Place) -> Any:
    """The value that the document has at a place, or None."""
    return within(resolved, place[:-1]).get(place[-1])


def worker_places(target: Target, leaf: str) -> list[Place]:
    """Where flags (`args`), variables (`env`) or keys (`config`) of workers may stand."""
    return [("engine", leaf), *(("workers", role.value, leaf) for role, _ in target.workers.items())]


def flag_name(name: str) -> str:
    """A flag as its parser knows it: dashes for underscores, without a key behind a dot, without `no-`."""
    return name.partition(".")[0].replace("_", "-").removeprefix("no-")


def role_args(target: Target, workers: Workers) -> dict[str, Any]:
    """The flags that the workers of one role get from the target's `args`, by canonical name."""
    merged = {name.replace("_", "-"): value for name, value in target.engine.args.items()}
    merged |= {name.replace("_", "-"): value for name, value in workers.args.items()}
    for name in list(merged):
        if name.startswith("no-") and merged[name] is True:
            merged[name.removeprefix("no-")] = False
    return merged


def arg_origin(resolved: Resolved, role: Role, name: str) -> str:
    """Where a role's flag was set: the role's own args, else the engine's."""
    for place in (("workers", role.value, "args"), ("engine", "args")):
        for spelling in within(resolved, place):
            if flag_name(spelling) == name:
                return resolved.origin(*place, spelling)
    return "default"


def number(value: Any) -> int | None:
    """A count as vLLM's flags take it: `131072`, `128k` (128,000), `128K` (131,072). None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value)
    match = _HUMAN.match(value.strip()) if isinstance(value, str) else None
    return int(float(match.group(1)) * _SCALE[match.group(2)]) if match else None


def share(value: Any) -> float | None:
    """A fraction such as 0.9, also written as text. None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def roles(target: Target) -> Iterator[tuple[Role, Workers]]:
    """The roles that the target has."""
    yield from target.workers.items()


def env_of(target: Target, workers: Workers) -> dict[str, str]:
    """The variables that the target gives to workers of a role, as text."""
    return {name: str(value) for name, value in {**target.engine.env, **workers.env}.items()}


def round_up(count: int, step: int) -> int:
    """The least multiple of `step` that is not below `count`."""
    return -(-count // step) * step
