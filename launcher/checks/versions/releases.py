"""Which releases run a plan: those that are installed, else those that the target was validated with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from launcher.target.schema import Target

VLLM_OF_DYNAMO = {"1.3.1": "0.23.0", "1.4.2": "0.26.0", "1.6.1": "0.31.0"}
"""The vLLM that the `vllm` extra of each Dynamo release pins; the releases with a record in `engines/data`."""
TRTLLM_OF_DYNAMO = {"1.2": "1.3.0rc14", "1.3": "1.3.0rc19", "1.4": "1.3.0rc22", "1.6": "1.3.0rc29"}
"""The TensorRT-LLM that each Dynamo series pins."""
_ENGINE_PACKAGE = {"vllm": "vllm", "trtllm": "tensorrt-llm"}


@dataclass(frozen=True, slots=True)
class Releases:
    """Version texts; empty where neither the machine nor the target says."""

    dynamo: str
    engine: str
    """Of vLLM or TensorRT-LLM, whichever the target runs."""
    dynamo_installed: bool
    engine_installed: bool


def of(target: Target, packages: Mapping[str, str]) -> Releases:
    """The releases that the plan's processes will run."""
    package = _ENGINE_PACKAGE.get(target.engine.kind, "")
    named, _, version = target.validated.engine.partition(" ")
    dynamo, engine = packages.get("ai-dynamo"), packages.get(package)
    return Releases(
        dynamo=dynamo or target.validated.dynamo,
        engine=engine or (version.strip() if named == package else ""),
        dynamo_installed=dynamo is not None,
        engine_installed=engine is not None,
    )


def numbers(version: str) -> tuple[int, ...]:
    """`1.4.2.post1` as (1, 4, 2): the leading numbers, for comparing."""
    match = re.match(r"v?(\d{1,9}(?:\.\d{1,9}){0,3})", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()


def series(version: str) -> str:
    """`1.4.2` as `1.4`."""
    return ".".join(map(str, numbers(version)[:2]))


def closest(version: str, recorded: Iterable[str]) -> tuple[str, bool]:
    """The release on record that stands for `version`, and whether it is the very one.

    The same series, else the newest that is older, else the oldest of all.
    """
    known = sorted(recorded, key=numbers)
    wanted = numbers(version)
    exact = [release for release in known if numbers(release) == wanted]
    if exact:
        return exact[0], True
    same = [release for release in known if series(release) == series(version)]
    older = [release for release in known if numbers(release) <= wanted]
    return (same or older or known[:1])[-1], False
