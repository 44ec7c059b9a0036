"""The transfer proof: that KV moves between every prefill and every decode worker, how fast, and by which lane.

Each pair is asked for by the workers' ids. A decode worker serves one pair at a time meanwhile, so that what its own
NIXL counters grow by (`vllm:nixl_bytes_transferred`, `vllm:nixl_xfer_time_seconds`) belongs to that pair; other traffic
would blur it, so the figures are those of an idle deployment. The lane is what UCX wrote into the decode worker's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launcher.prove.ears import FAST
from launcher.prove.frontend import Frontend
from launcher.prove.kv_routing import REQUEST_S, unseen
from launcher.prove.proof import Outcome, Proof, failed, passed, skipped

NAME, LANE = "KV transfer", "fast lane"
TOKENS = 2048
"""Tokens of a prompt at least: some 36 MiB of KV of the 120b in fp8, so that bandwidth shows beside latency."""
BYTES, SECONDS = "vllm:nixl_bytes_transferred_sum", "vllm:nixl_xfer_time_seconds_sum"
COUNTED_S = 5.0
"""How long a counter may lag behind the answer."""
LOGGED_S = 0.5
"""How long a line may be on its way from a worker's log."""
LANE_FIX = (
    "it takes NVLink, each worker seeing its peers' GPUs (CUDA_VISIBLE_DEVICES), and one IPC namespace; "
    "on one GPU UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on"
)


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of the disaggregated deployment."""

    name: str
    number: int
    """Its id in the router."""
    metrics: str
    """Root of its status server's URL."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What was seen of one prefill and one decode worker."""

    prefill: str
    decode: str
    fault: str = ""
    moved_bytes: float | None = None
    seconds: float | None = None
    estimate_s: float | None = None
    """What the frontend estimates, without looking; all there is where nothing real moves."""
    lanes: tuple[str, ...] = ()

    @property
    def gb_s(self) -> float | None:
        """Gigabytes (10^9) per second."""
        if not self.moved_bytes or not self.seconds:
            return None
        return self.moved_bytes / self.seconds / 1e9

    def to_json(self) -> dict[str, Any]:
        rate = self.gb_s
        fields: dict[str, Any] = {
            "prefill": self.prefill,
            "decode": self.decode,
            "fault": self.fault,
            "bytes": int(self.moved_bytes) if self.moved_bytes is not None else None,
            "seconds": round(self.seconds, 6) if self.seconds is not None else None,
            "gb_s": round(rate, 3) if rate is not None else None,
            "estimate_s": self.estimate_s,
            "lanes": list(self.lanes),
        }
        return {key: value for key, value in fields.items() if value not in (None, "", [])}


class Transfer:
    """One run over all pairs."""

    def __init__(
        self,
        frontend: Frontend,
        prefill: Sequence[Member],
        decode: Sequence[Member],
        lanes: Callable[[str], tuple[str, ...]],
        *,
        simulated: bool,
        longest: int = 131072,
    ) -> None:
        self._frontend = frontend
        self._prefill = prefill
        self._decode = decode
        self._lanes = lanes
        self._simulated = simulated
        self._tokens = min(TOKENS, longest // 8)

    async def run(self) -> tuple[Proof, Proof]:
        """The proof that KV moved, and the proof that it moved by a fast lane."""
        pairs: list[Pair] = []
        for turn in range(len(self._prefill)):
            # A decode worker meets one prefill worker at a time, and all decode workers are at it together.
            meetings = [
                (self._prefill[(place + turn) % len(self._prefill)], decode)
                for place, decode in enumerate(self._decode)
            ]
            pairs += await asyncio.gather(*(self._meet(prefill, decode) for prefill, decode in meetings))
        if not self._simulated:
            await asyncio.sleep(LOGGED_S)
            pairs = [replace(pair, lanes=self._lanes(pair.decode)) for pair in pairs]
        pairs.sort(key=lambda pair: (pair.prefill, pair.decode))
        return verdict(pairs, simulated=self._simulated), lane_verdict(pairs, simulated=self._simulated)

    async def _meet(self, prefill: Member, decode: Member) -> Pair:
        before = await self._counters(decode)
        request = {
            "model": self._frontend.model,
            "prompt": unseen(self._tokens),
            "max_tokens": 4,
            "nvext": {
                "extra_fields": ["worker_id", "timing"],
                "prefill_worker_id": prefill.number,
                "decode_worker_id": decode.number,
            },
        }
        answer = await self._frontend.post("/v1/completions", request, REQUEST_S)
        if not answer.ok or not isinstance(answer.body, dict):
            return Pair(prefill.name, decode.name, f"gave no answer ({answer})")
        extra = answer.body.get("nvext") or {}
        went: Mapping[str, Any] = extra.get("worker_id") or {}
        if (went.get("prefill_worker_id"), went.get("decode_worker_id")) != (prefill.number, decode.number):
            return Pair(prefill.name, decode.name, "was passed over when asked by its workers' ids")
        estimate = (extra.get("timing") or {}).get("kv_transfer_estimated_latency_ms")
        estimate_s = round(estimate / 1000, 6) if isinstance(estimate, int | float) else None
        if self._simulated:
            return Pair(prefill.name, decode.name, estimate_s=estimate_s)
        moved = seconds = None
        deadline = asyncio.get_running_loop().time() + COUNTED_S
        while True:
            after = await self._counters(decode)
            if before is not None and after is not None:
                moved, seconds = after[0] - before[0], after[1] - before[1]
            if moved != 0.0 or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.2)
        fault = "moved no KV: decode computed the prompt itself" if moved == 0 else ""
        return Pair(prefill.name, decode.name, fault, moved, seconds, estimate_s)

    async def _counters(self, decode: Member) -> tuple[float, float] | None:
        """Bytes and seconds of NIXL so far; None where the worker has no such counters (before its first transfer)."""
        page = await self._frontend.metrics(decode.metrics)
        if page is None:
            return None
        if page.total(BYTES) is None and not any(name.startswith("vllm:") for name in page.families):
            return None
        return page.total(BYTES) or 0.0, page.total(SECONDS) or 0.0


def verdict(pairs: Sequence[Pair], *, simulated: bool) -> Proof:
    """Whether KV moved between all pairs."""
    figures: dict[str, Any] = {"simulated": simulated, "pairs": [pair.to_json() for pair in pairs]}
    bad = [pair for pair in pairs if pair.fault]
    if bad:
        text = f"{len(bad)} of {len(pairs)} pairs: {bad[0].prefill} -> {bad[0].decode} {bad[0].fault}"
        return failed(NAME, text, "the decode worker's log for NIXL and UCX", **figures)
    if simulated:
        estimates = [pair.estimate_s for pair in pairs if pair.estimate_s is not None]
        guess = f"; the frontend estimates {max(estimates) * 1000:.1f} ms each" if estimates else ""
        return passed(
            NAME, f"simulated: {len(pairs)} of {len(pairs)} pairs answered, no KV moved{guess}", **figures
        )
    speeds = [pair.gb_s for pair in pairs if pair.gb_s is not None]
    if len(speeds) < len(pairs):
        unknown = len(pairs) - len(speeds)
        text = f"{len(pairs)} pairs answered; {unknown} have no NIXL figures on decode's /metrics"
        return Proof(NAME, Outcome.SKIPPED, text, figures=figures)
    total = sum(pair.moved_bytes or 0.0 for pair in pairs)
    low, high = min(speeds), max(speeds)
    speed = f"{low:.3g} GB/s" if len(speeds) == 1 else f"{low:.3g} to {high:.3g} GB/s"
    return passed(
        NAME, f"{len(pairs)} of {len(pairs)} pairs moved KV, {total / 1e6:.1f} MB at {speed}", **figures
    )


def lane_verdict(pairs: Sequence[Pair], *, simulated: bool) -> Proof:
    """Whether all pairs use a fast lane. Lanes are known per decode worker: UCX says each kind once."""
    if simulated:
        return skipped(LANE, "simulated: there is no lane")
    known = {pair.decode: pair.lanes for pair in pairs}
    silent = [name for name, lanes in known.items() if not lanes]
    slow = {name: lanes for name, lanes in known.items() if lanes and not FAST.issuperset(lanes)}
    figures: dict[str, Any] = {"lanes": {name: list(lanes) for name, lanes in known.items()}}
    if slow:
        name, lanes = next(iter(slow.items()))
        text = f"{name} moves KV by {' and '.join(lanes)}"
        more = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
        return failed(LANE, text + more, LANE_FIX, final=True, **figures)
    if silent:
        text = f"{', '.join(silent)} did not say by which lane KV moves"
        return failed(LANE, text, "UCX_PROTO_INFO=y in the workers' environment", **figures)
    kinds = sorted({kind for lanes in known.values() for kind in lanes})
    return passed(LANE, f"KV moves by {' and '.join(kinds)}", **figures)
