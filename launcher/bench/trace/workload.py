"""A target's traffic as rows."""

from __future__ import annotations

from launcher.target.schema import Workload

from .make import make
from .model import DEFAULT_BLOCK, Row, Shape


def rows(
    workload: Workload, requests: int, concurrency: int, limit: int, seed: int, shared: int | None = None
) -> list[Row]:
    """The workload's requests: growing sessions where it has a hit rate, else prompts that share nothing.

    `limit`: context length, tokens; `shared`: prefix of all sessions, tokens. The same arguments give the same rows.
    """
    block = workload.trace_block or DEFAULT_BLOCK
    if workload.cache_hit:
        shape = Shape(
            requests=requests,
            isl=workload.isl,
            osl=workload.osl,
            hit=workload.cache_hit,
            block=block,
            limit=limit,
            active=min(concurrency, requests),
            seed=seed,
            shared=shared,
        )
        return make(shape)
    count = -(-workload.isl // block)
    return [
        Row(workload.isl, workload.osl, tuple(range(index * count, (index + 1) * count)))
        for index in range(requests)
    ]
