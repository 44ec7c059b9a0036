"""Keys of the engine YAML: unknown, of the wrong type, said twice, or without effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launcher.checks.target.places import within, worker_places
from launcher.checks.target.trtllm import schema
from launcher.checks.target.trtllm.view import FLAGS, View, views
from launcher.findings import Finding, Severity, nearest
from launcher.plan.model import Role
from launcher.target import voice
from launcher.target.resolve import Resolved


def unknown(resolved: Resolved) -> Iterator[Finding]:
    """TensorRT-LLM forbids keys that it does not know: one slip of the pen, and every rank exits while it loads."""
    seen: set[str] = set()
    for view in views(resolved):
        for path in _unknown_paths(view.config):
            dotted = ".".join(path)
            if dotted in seen:
                continue
            seen.add(dotted)
            known = schema.known_top() if len(path) == 1 else list(schema.GROUPS[path[0]])
            close = nearest(path[-1], known) or (nearest(path[-1].lower(), known) if path else None)
            elsewhere = [group for group, keys in schema.GROUPS.items() if path[-1] in keys]
            if close is None and elsewhere:
                fix = f"it belongs into {elsewhere[0]}"
            elif close is not None:
                fix = f"did you mean {close!r}?"
            else:
                fix = "remove it, or --ignore trt-key where this release is newer than the launcher"
            yield Finding(
                code="trt-key",
                what=f"{dotted} is no key of TensorRT-LLM's engine YAML",
                where=view.origin(*path),
                why="the engine forbids unknown keys and exits while it loads",
                fix=fix,
            )


def _unknown_paths(config: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    top = set(schema.known_top())
    for name, value in config.items():
        if name not in top:
            yield (name,)
        elif name in schema.GROUPS and isinstance(value, dict):
            yield from ((name, key) for key in value if key not in schema.GROUPS[name])


def values(resolved: Resolved) -> Iterator[Finding]:
    """Types, ranges and choices of the keys, as TensorRT-LLM checks them itself after minutes of imports."""
    seen: set[tuple[str, ...]] = set()
    if resolved.target.engine.kind == "trtllm":
        yield from _no_groups(resolved)
    for view in views(resolved):
        for path, key, value in _known(view.config):
            problem = schema.fault(key, value)
            if not problem or path in seen:
                continue
            seen.add(path)
            yield Finding(
                code="trt-value",
                what=f"{'.'.join(path)} is {value!r}: {problem}",
                where=view.origin(*path),
                why="the engine refuses it and exits while it loads",
                fix=_right(key, value),
            )


def _no_groups(resolved: Resolved) -> Iterator[Finding]:
    """A plain value where a group of keys belongs: merging the layers would lose it."""
    for place in worker_places(resolved.target, "config"):
        for name, value in within(resolved, place).items():
            if name in schema.GROUPS and not isinstance(value, dict):
                yield Finding(
                    code="trt-value",
                    what=f"{'.'.join(place)}.{name} is {value!r}: must be a group of keys",
                    where=resolved.origin(*place, name),
                    why="the engine refuses it and exits while it loads",
                    fix="with keys such as " + ", ".join(list(schema.GROUPS[name])[:3]),
                )


def _known(config: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], schema.Key, Any]]:
    for name, value in config.items():
        if name in schema.GROUPS:
            if isinstance(value, dict):
                for key, item in value.items():
                    if key in schema.GROUPS[name]:
                        yield (name, key), schema.GROUPS[name][key], item
        elif name in schema.TOP:
            yield (name,), schema.TOP[name], value


def _right(key: schema.Key, value: Any) -> str:
    if key.choices:
        text = str(value)
        close = nearest(text, key.choices) or nearest(text.upper(), key.choices)
        return f"did you mean {close!r}?" if close else "one of: " + ", ".join(key.choices)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return voice.meant({"type": f"{key.kind}_type", "input": value})
    if key.least is not None and value < key.least:
        return f"{key.least:g} or more"
    return f"{key.most:g} or less" if key.most is not None else ""


def twice(resolved: Resolved) -> Iterator[Finding]:
    """Where a flag and a key of the YAML say the same thing differently, the YAML wins, silently."""
    for view in views(resolved):
        for flag, path in FLAGS.items():
            here: Any = view.config
            for part in path:
                here = here.get(part) if isinstance(here, dict) else None
            if flag in view.args and here is not None and here != view.args[flag]:
                yield Finding(
                    code="trt-twice",
                    what=f"--{flag} {view.args[flag]} and {'.'.join(path)}: {here} for {view.role} workers",
                    severity=Severity.WARNING,
                    where=view.origin(*path),
                    why="the YAML wins over the command line, and nothing says so",
                    fix=f"keep the YAML's and remove the flag {flag}",
                )


def graphs(resolved: Resolved) -> Iterator[Finding]:
    """CUDA graphs are captured for batch sizes up to a maximum; where both are given they must agree."""
    for view in views(resolved):
        sizes = view.given("cuda_graph_config", "batch_sizes")
        most = view.given("cuda_graph_config", "max_batch_size")
        ints = isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes)
        if ints and isinstance(most, int) and most and most != max(sizes):
            yield Finding(
                code="trt-graphs",
                what=f"cuda_graph_config.max_batch_size is {most}, the largest of batch_sizes {max(sizes)}",
                where=view.origin("cuda_graph_config", "max_batch_size"),
                why="the engine refuses it",
                fix=f"remove max_batch_size, or {max(sizes)}",
            )


def no_effect(resolved: Resolved) -> Iterator[Finding]:
    """Keys that change nothing as the rest stands; the public recipe has such a one (`enable_balance`)."""
    for view in views(resolved):
        for path, why, fix in _idle(view):
            yield Finding(
                code="trt-no-effect",
                what=f"{'.'.join(path)} of {view.role} workers has no effect",
                severity=Severity.WARNING,
                where=view.origin(*path),
                why=why,
                fix=fix,
            )


def _idle(view: View) -> Iterator[tuple[tuple[str, ...], str, str]]:
    balance = ("attention_dp_config", "enable_balance")
    if view.given(*balance) and not view.value("enable_attention_dp"):
        yield balance, "attention DP is off", "enable_attention_dp: true, or remove attention_dp_config"
    graph, batch = view.count("cuda_graph_config", "max_batch_size"), view.count("max_batch_size")
    if graph and batch and graph > batch:
        path = ("cuda_graph_config", "max_batch_size")
        yield path, f"no batch is larger than max_batch_size {batch}", f"at most {batch}"
    if view.role is Role.AGGREGATED and view.given("cache_transceiver_config", "backend"):
        yield ("cache_transceiver_config",), "an aggregated worker hands no KV over", "remove it"
