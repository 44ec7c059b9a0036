"""What must be proven before a deployment counts as ready."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Level = Literal["require", "warn", "skip"]
"""require: not ready until it is proven; warn: a failure is said and shown, and traffic is let in; skip: not tried
(`off` would be a boolean in YAML).

After the first time ready a failure is always a warning: a pod that serves is not taken out of rotation for it.
"""


class Proofs(BaseModel):
    """A completion is always required; these come on top."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    tool_call: Level | None = None
    """A call of an offered tool. Where not given: require, but skip where no answer could prove it (the mocker's random
    text, `load-format: dummy`, no parsers). With warn or skip the completion need not say anything either: for random
    weights that are read from files."""
    kv_routing: Level = "require"
    """Repeats and siblings of a prompt find it on the worker that has it. Only where the router goes by KV events."""
    transfer: Level = "warn"
    """KV moves between every prefill and every decode worker."""
    fast_lane: Level = "warn"
    """It moves by CUDA IPC or RDMA, not TCP. `--require-fast-lane` sets require."""
