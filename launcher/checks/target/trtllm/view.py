"""What a TensorRT-LLM worker of a role will be told: its YAML over its command line, and where each value was set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from launcher.checks.target.places import env_of, flag_name, number, role_args, within
from launcher.engines.trtllm import engine_config
from launcher.plan.model import Role
from launcher.target.resolve import Resolved
from launcher.target.schema import Workers

KeyPath = tuple[str, ...]

FLAGS: dict[str, KeyPath] = {
    "tensor-parallel-size": ("tensor_parallel_size",),
    "pipeline-parallel-size": ("pipeline_parallel_size",),
    "expert-parallel-size": ("moe_expert_parallel_size",),
    "enable-attention-dp": ("enable_attention_dp",),
    "max-batch-size": ("max_batch_size",),
    "max-num-tokens": ("max_num_tokens",),
    "max-seq-len": ("max_seq_len",),
    "max-beam-width": ("max_beam_width",),
    "free-gpu-memory-fraction": ("kv_cache_config", "free_gpu_memory_fraction"),
}
"""Flags of dynamo.trtllm that say the same as a key of the YAML; the YAML wins."""
TYPED: dict[KeyPath, tuple[str, ...]] = {
    ("cache_transceiver_config", "backend"): ("kv", "transfer", "connector"),
    ("cache_transceiver_config", "max_tokens_in_buffer"): ("kv", "transfer", "max_tokens_in_buffer"),
    ("kv_cache_config", "dtype"): ("kv", "dtype"),
}
"""Keys that the launcher makes from typed fields of the target."""

DEFAULTS: dict[KeyPath, Any] = {
    ("tensor_parallel_size",): 1,
    ("pipeline_parallel_size",): 1,
    ("max_batch_size",): 2048,
    ("max_num_tokens",): 8192,
    ("enable_attention_dp",): False,
    ("enable_chunked_prefill",): False,
    ("kv_cache_config", "enable_block_reuse"): True,
    ("kv_cache_config", "dtype"): "auto",
    ("kv_cache_config", "tokens_per_block"): 32,
}
"""TensorRT-LLM's own defaults, 1.3.0rc14 to rc29."""


@dataclass(frozen=True, slots=True)
class View:
    """One role."""

    resolved: Resolved
    role: Role
    workers: Workers
    config: dict[str, Any]
    """The complete engine YAML."""
    args: dict[str, Any]
    """The raw flags."""
    env: dict[str, str]

    def given(self, *path: str) -> Any:
        """The value of a key as it takes effect, or None where nobody gave it."""
        here: Any = self.config
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        if here is not None:
            return here
        return next(
            (self.args[flag] for flag, key in FLAGS.items() if key == path and flag in self.args), None
        )

    def value(self, *path: str) -> Any:
        """The same, or the engine's default."""
        found = self.given(*path)
        return DEFAULTS.get(path) if found is None else found

    def count(self, *path: str) -> int | None:
        """A value that is a number of something; None where it is not (the rule over types says so)."""
        return number(self.value(*path))

    def origin(self, *path: str) -> str:
        """Where the value was set."""
        places = [("workers", self.role.value, "config"), ("engine", "config")]
        for length in range(len(path), 0, -1):
            for place in places:
                here: Any = within(self.resolved, place)
                for part in path[:length]:
                    here = here.get(part) if isinstance(here, dict) else None
                if here is not None:
                    return self.resolved.origin(*place, *path[:length])
            if path[:length] in TYPED:
                return self.resolved.origin(*TYPED[path[:length]])
        for place in (("workers", self.role.value, "args"), ("engine", "args")):
            for flag in within(self.resolved, place):
                if FLAGS.get(flag_name(flag)) == path:
                    return self.resolved.origin(*place, flag)
        return "default"


def views(resolved: Resolved) -> Iterator[View]:
    """Each role of a TensorRT-LLM target; nothing for any other."""
    target = resolved.target
    if target.engine.kind != "trtllm":
        return
    for role, workers in target.workers.items():
        yield View(
            resolved,
            role,
            workers,
            engine_config(target, role, workers),
            role_args(target, workers),
            env_of(target, workers),
        )


def by_role(resolved: Resolved) -> dict[Role, View]:
    """The same by role."""
    return {view.role: view for view in views(resolved)}


def shown(role: Role, *path: str) -> str:
    """How a key is written in `--set`: the role's own, so that it wins."""
    return ".".join(("workers", role.value, "config", *path))
