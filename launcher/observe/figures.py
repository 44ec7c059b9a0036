"""What is served now, in a few figures: rates and latencies from two looks at the children's metrics. Pure.

Names of families: Dynamo 1.3.1 to 1.6.1 (frontend), vLLM and the mocker (workers). What a release lacks stays out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.plan.model import Role

if TYPE_CHECKING:
    from launcher.observe.exposition import Page
    from launcher.observe.scrape import Scrape

WINDOW_S = 10.0
"""Rates are over this time, or over what there is of it."""
OUTPUT_TOKENS = ("dynamo_frontend_output_tokens_total", "dynamo_frontend_output_sequence_tokens_sum")
"""The first that the frontend has; the second counts a request's tokens when it ends."""
_COUNTERS = {
    "requests": ("dynamo_frontend_requests_total",),
    "tokens": OUTPUT_TOKENS,
    "ttft_sum": ("dynamo_frontend_time_to_first_token_seconds_sum",),
    "ttft_count": ("dynamo_frontend_time_to_first_token_seconds_count",),
    "itl_sum": ("dynamo_frontend_inter_token_latency_seconds_sum",),
    "itl_count": ("dynamo_frontend_inter_token_latency_seconds_count",),
}
_IN_FLIGHT = ("dynamo_frontend_inflight_requests", "dynamo_frontend_inflight_requests_total")
_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_RUNNING = ("vllm:num_requests_running", "dynamo_component_inflight_requests")


@dataclass(frozen=True, slots=True)
class Look:
    """The frontend's counters at one moment (monotonic seconds)."""

    at: float
    counters: Mapping[str, float]


class Figures:
    """Give every scrape to `add`."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=64)
        self._in_flight: float | None = None
        self.workers: dict[str, dict[str, float]] = {}
        """Worker to `kv_usage` (0 to 1) and `running` requests, as far as it says."""

    def add(self, scrape: Scrape) -> None:
        """Take what is of use from it."""
        if self._looks and self._looks[-1].at >= scrape.at:
            return
        self.workers = {}
        for result in scrape.results:
            page = result.page
            if page is None:
                continue
            if result.target.role == Role.FRONTEND.value:
                self._frontend(page, scrape.at)
            else:
                found = {"kv_usage": _first(page, _KV_USAGE), "running": _first(page, _RUNNING)}
                self.workers[result.target.worker] = {
                    name: value for name, value in found.items() if value is not None
                }

    def _frontend(self, page: Page, at: float) -> None:
        counters = {name: _first(page, names) or 0.0 for name, names in _COUNTERS.items()}
        before = self._looks[-1].counters if self._looks else counters
        if any(value < before[name] for name, value in counters.items()):
            # Another frontend, whose counters began anew. One alone may tell: it may have had as many requests already.
            self._looks.clear()
        self._looks.append(Look(at, counters))
        while len(self._looks) > 2 and at - self._looks[1].at >= WINDOW_S:
            self._looks.popleft()
        self._in_flight = _first(page, _IN_FLIGHT)

    def to_json(self) -> dict[str, Any] | None:
        """Rates over the last seconds, latencies in seconds; None before there were two looks."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0], self._looks[-1]
        seconds = last.at - first.at
        gone = {name: value - first.counters[name] for name, value in last.counters.items()}
        return {
            "window_s": round(seconds, 1),
            "requests_per_s": round(gone["requests"] / seconds, 2),
            "output_tokens_per_s": round(gone["tokens"] / seconds, 1),
            "ttft_s": _mean(gone["ttft_sum"], gone["ttft_count"]),
            "itl_s": _mean(gone["itl_sum"], gone["itl_count"]),
            "in_flight": int(self._in_flight) if self._in_flight is not None else None,
        }


def _first(page: Page, names: tuple[str, ...]) -> float | None:
    return next((value for name in names if (value := page.total(name)) is not None), None)


def _mean(total: float, count: float) -> float | None:
    return round(total / count, 5) if count > 0 else None
