"""A target's traffic as rows."""

from __future__ import annotations

from launcher.findings import Finding, LauncherError
from launcher.target.schema import Workload

from . import make
from .model import DEFAULT_BLOCK, Row, Shape


def rows(
    workload: Workload, requests: int, concurrency: int, limit: int, seed: int, shared: int | None = None
) -> list[Row]:
    """The workload's requests: growing sessions where it has a hit rate, else prompts that share nothing.

    `limit`: context length, tokens; `shared`: prefix of all sessions, tokens. The same arguments give the same rows.
    Raises LauncherError where they cannot be had.
    """
    check(workload, requests, concurrency, limit, seed, shared)
    if workload.cache_hit:
        return make.make(_shape(workload, requests, concurrency, limit, seed, shared))
    count = -(-workload.isl // _block(workload))
    return [
        Row(workload.isl, workload.osl, tuple(range(index * count, (index + 1) * count)))
        for index in range(requests)
    ]


def check(
    workload: Workload, requests: int, concurrency: int, limit: int, seed: int, shared: int | None = None
) -> None:
    """Raise LauncherError where `rows` could not make them; takes no time."""
    try:
        if workload.cache_hit:
            make.check(_shape(workload, requests, concurrency, limit, seed, shared))
        else:
            make.check_size(requests, workload.isl, _block(workload))
    except ValueError as error:
        raise LauncherError(
            Finding(
                code="trace-shape",
                what=f"no trace of {requests} requests can be made: {error}",
                where="the target's workload",
                fix="other values with --set workload.…, or --requests N",
            )
        ) from None


def _block(workload: Workload) -> int:
    return workload.trace_block or DEFAULT_BLOCK


def _shape(
    workload: Workload, requests: int, concurrency: int, limit: int, seed: int, shared: int | None
) -> Shape:
    assert workload.cache_hit is not None
    return Shape(
        requests=requests,
        isl=workload.isl,
        osl=workload.osl,
        hit=workload.cache_hit,
        block=_block(workload),
        limit=limit,
        active=min(concurrency, requests),
        seed=seed,
        shared=shared,
    )
