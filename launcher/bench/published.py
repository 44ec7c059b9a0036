"""Figures beside those that others published, and whether either adds up."""

from __future__ import annotations

from launcher.bench.limits import gpus
from launcher.target.schema import Published, Target

from .point import Point

OFF = 0.1
"""Share by which Little's law may be missed before it is said: ramps and rounding stay below."""


def implied_concurrency(published: Published, gpu_count: int, osl: int) -> float:
    """Requests in flight that published figures need: (tokens/s / OSL) x (TTFT + OSL / tokens/s of a user)."""
    requests_s = published.tok_s_gpu * gpu_count / osl
    return requests_s * (published.ttft_avg_s + osl / published.tok_s_user)


def published_gpus(target: Target) -> int:
    """GPUs that the published figures were measured on: those of the target as it is written."""
    return target.hardware.gpus or gpus(target)


def check_published(target: Target) -> str:
    """One line: whether the published figures fit together."""
    published, workload = target.published, target.workload
    if published is None or workload is None:
        return ""
    needed = implied_concurrency(published, published_gpus(target), workload.osl)
    off = needed / published.concurrency - 1
    verdict = "fits" if abs(off) <= OFF else f"{off:+.0%}: they cannot all be means of one run"
    return (
        f"Little's law, published: {published.tok_s_gpu:g} tok/s/GPU at {published.ttft_avg_s:g} s TTFT and "
        f"{published.tok_s_user:g} tok/s/user need {needed:,.0f} requests in flight, {published.concurrency} were "
        f"({verdict})"
    )


def check_point(point: Point) -> str:
    """One line: whether the load was what was asked for."""
    wanted = point.conditions.concurrency
    share = point.in_flight / wanted
    line = (
        f"Little's law, measured: {point.requests_s:.2f} req/s x {point.latency_mean:.2f} s = {point.in_flight:.1f} "
        f"requests in flight, {wanted} asked for"
    )
    if share < 1 - OFF:
        return f"{line} ({share - 1:+.0%}: ramp-up and tail, or the client could not keep up)"
    return f"{line} (fits)"


def gpu_note(target: Target) -> str:
    """What to know about the GPU count, where the recipe's differs from the deployment's."""
    workload = target.workload
    if workload is None or workload.concurrency_gpus is None:
        return ""
    used, counted = gpus(target), workload.concurrency_gpus
    each = workload.concurrency / counted
    if used == counted:
        return f"concurrency {workload.concurrency:,} = {each:g} x {counted} GPUs"
    return (
        f"concurrency {workload.concurrency:,} = {each:g} x {counted} GPUs in the public recipe, but this target uses "
        f"{used}: per-GPU figures here divide by {used}; dividing by {counted} would show {used / counted:.0%} of "
        f"them, and {each:g} a GPU would be --concurrency {each * used:g}"
    )
