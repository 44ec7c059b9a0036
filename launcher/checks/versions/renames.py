"""Flags that a release calls by another name: passed under the name that it knows, and said.

Only where the meaning is the same; everything else that a release lacks is refused (`flag-version`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.checks.versions import dynamo_flags, releases, vllm_flags
from launcher.checks.versions.releases import VLLM_OF_DYNAMO
from launcher.findings import Finding, Severity
from launcher.target.resolve import Resolved
from launcher.target.schema import Target

Names = tuple[str, ...]
SAME: tuple[tuple[str, Names], ...] = (
    # Dynamo 1.6 split the TensorRT-LLM worker's flag into events and metrics.
    ("publish-events-and-metrics", ("publish-kv-events", "publish-metrics")),
    ("publish-metrics", ("publish-events-and-metrics",)),
    # vLLM 0.31 has it as a second name.
    ("device-memory-utilization", ("gpu-memory-utilization",)),
)
PREFIXES = (("ais-", "aic-"), ("aic-", "ais-"))
"""AIConfigurator became AISimulate in Dynamo 1.6, which still takes the old spelling; older ones not the new."""
VALUES = {"router-prefill-load-model": {"ais": "aic"}}


def adapt(resolved: Resolved, packages: Mapping[str, str]) -> tuple[Target, list[Finding]]:
    """The target with its flags under the names that the releases know, and a warning for each one changed."""
    target = resolved.target
    found = releases.of(target, packages)
    release, _ = releases.closest(found.dynamo, dynamo_flags.recorded())
    said: list[Finding] = []

    def renamed(args: dict[str, Any], module: str, place: tuple[str, ...]) -> dict[str, Any]:
        if not args:
            return args
        known = _known(module, release, found.engine)
        result: dict[str, Any] = {}
        for name, value in args.items():
            news = next(_other_names(name, known), (name,))
            mapped = VALUES.get(name, {}).get(str(value), value)
            choices = dynamo_flags.flags(module, release).get(f"--{name}", {}).get("choices", [])
            if mapped != value and mapped in choices and value not in choices:
                said.append(_finding(resolved, (*place, name), f"--{name} {mapped}", found.dynamo))
                value = mapped
            if news != (name,):
                shown = " ".join(f"--{new}" for new in news)
                said.append(_finding(resolved, (*place, name), shown, found.dynamo))
            result |= dict.fromkeys(news, value)
        return result

    worker = {"vllm": "dynamo.vllm", "trtllm": "dynamo.trtllm"}.get(target.engine.kind)
    changes: dict[str, Any] = {}
    frontend = renamed(target.frontend.args, "dynamo.frontend", ("frontend", "args"))
    if frontend != target.frontend.args:
        changes["frontend"] = target.frontend.model_copy(update={"args": frontend})
    if target.engine.kind == "mocker":
        simulation = renamed(target.simulation.args, "dynamo.mocker", ("simulation", "args"))
        if simulation != target.simulation.args:
            changes["simulation"] = target.simulation.model_copy(update={"args": simulation})
    if worker is not None:
        engine = renamed(target.engine.args, worker, ("engine", "args"))
        if engine != target.engine.args:
            changes["engine"] = target.engine.model_copy(update={"args": engine})
        roles = {}
        for role, workers in target.workers.items():
            args = renamed(workers.args, worker, ("workers", role.value, "args"))
            if args != workers.args:
                roles[role.value] = workers.model_copy(update={"args": args})
        if roles:
            changes["workers"] = target.workers.model_copy(update=roles)
    return (target.model_copy(update=changes) if changes else target), said


def _known(module: str, release: str, engine: str) -> set[str]:
    names = {flag.removeprefix("--") for flag in dynamo_flags.flags(module, release)}
    if module == "dynamo.vllm":
        record, _ = releases.closest(engine or VLLM_OF_DYNAMO[release], vllm_flags.recorded())
        names |= {name.removeprefix("--") for name in vllm_flags.engine_args(record).names}
    return names


def _other_names(name: str, known: set[str]) -> Iterator[Names]:
    """Names of the same meaning that are known, where this one is not."""
    if name in known:
        return
    for old, news in SAME:
        if name == old and set(news) <= known:
            yield news
    for old, new in PREFIXES:
        if name.startswith(old) and new + name.removeprefix(old) in known:
            yield (new + name.removeprefix(old),)


def _finding(resolved: Resolved, place: tuple[str, ...], shown: str, release: str) -> Finding:
    return Finding(
        code="flag-renamed",
        what=f"{'.'.join(place)} is passed as {shown}",
        severity=Severity.WARNING,
        where=resolved.origin(*place),
        why=f"Dynamo {release} calls it so",
        fix="nothing has to be done; another release needs its own name",
    )
