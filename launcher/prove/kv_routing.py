"""The KV-routing self-test: does a prompt with a known prefix go to the worker that has it cached?

For each worker that should publish KV events: a prompt that nobody has seen is sent to that worker by its id. Then the
same prompt and a sibling (the same beginning, another end) are sent to whomever the router chooses. The frontend
reports for each request where it went and which share of its blocks the router's index knew there
(`nvext.extra_fields`; Dynamo 1.3.1 to 1.6.1). Nothing about the workers is believed: a worker that publishes nothing,
publishes to nobody, or in blocks of another size leaves the index empty, and its repeats come back with a share of 0.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.discovery.cards import Card
from launcher.prove.frontend import Answer, Frontend
from launcher.prove.proof import Proof, failed, passed, skipped

NAME = "KV routing"
BLOCKS = 10
"""Whole KV blocks that a prompt fills at least."""
HIT = 0.75
"""Least share of a repeated prompt's blocks that the index must know: at least 9 of 10 are expected, as the last may be
cut off."""
SIBLING_HIT = 0.5
"""The same for a sibling, of which three quarters are known."""
REQUEST_S = 60.0
SETTLE_S = (0.2, 0.4, 0.8, 1.6)
"""Waits before a repeat and before trying it again: events travel beside the answer."""
WHO = "{who}"
"""Stands in a fault for the workers that share it."""
# Common words, each one token in the o200k vocabulary: at least as many tokens as words, in any vocabulary.
WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"),
    *("state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week"),
    *(
        "company",
        "system",
        "program",
        "question",
        "work",
        "night",
        "point",
        "home",
        "water",
        "room",
        "mother",
    ),
    *("area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word"),
)


@dataclass(frozen=True, slots=True)
class Routed:
    """What the frontend says about one request."""

    worker: int | None
    """Where its prompt was computed."""
    hit: float | None
    """Share of its blocks that the router's index knew there."""
    cached: int | None
    """Prompt tokens that the engine itself says it had cached."""
    prompt: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found about one worker."""

    fault: str = ""
    hit: float = 0.0
    sibling_hit: float = 0.0
    cached: int | None = None


class KvRouting:
    """One run of the test."""

    def __init__(
        self,
        frontend: Frontend,
        workers: Mapping[int, str],
        *,
        disaggregated: bool,
        block_size: int | None = None,
        registered: Mapping[int, Card] | None = None,
        longest: int = 131072,
    ) -> None:
        """`workers`: id to name of those that should publish. `block_size`: as planned, in tokens.

        `registered`: id to what the worker told the router when it registered, where that is known. `longest`: tokens
        of the longest prompt that the deployment takes.
        """
        self._frontend = frontend
        self._workers = workers
        self._pin = "prefill_worker_id" if disaggregated else "backend_instance_id"
        self._block_size = block_size
        self._registered = registered or {}
        self._longest = longest

    async def run(self) -> Proof:
        """Test every worker; the text names those that fail."""
        before = await self._frontend.metrics()
        if before is None:
            return failed(NAME, "the frontend has no /metrics")
        in_force = before.total("dynamo_frontend_model_kv_cache_block_size")
        differs = self._block_sizes(in_force)
        if differs:
            return failed(NAME, differs, "one kv.block_size for frontend and workers", final=True)
        block = self._block_size or int(in_force or 64)
        if BLOCKS * block > self._longest // 2:
            return skipped(NAME, f"{BLOCKS} blocks of {block} tokens do not fit a prompt of {self._longest}")
        prompts = {number: unseen(BLOCKS * block) for number in self._workers}
        # Together: each waits for its own worker, and the first may compile kernels.
        firsts = await asyncio.gather(
            *(self._ask(prompts[number], {self._pin: number}) for number in self._workers)
        )
        seen: dict[str, Seen] = {}
        for (number, name), first in zip(self._workers.items(), firsts, strict=True):
            seen[name] = await self._follow(number, prompts[number], first)
        after = await self._frontend.metrics()
        return self._verdict(seen, _stored(before), _stored(after), _mismatched(after), in_force)

    def _block_sizes(self, in_force: float | None) -> str:
        """Who has KV blocks of another size than planned: the router drops such a worker, or takes over its size."""
        planned = self._block_size
        if planned is None:
            return ""
        for number, card in self._registered.items():
            if number in self._workers and card.block_size not in (None, planned):
                name = self._workers[number]
                return f"{name} has KV blocks of {card.block_size} tokens, the plan says {planned}"
        if in_force not in (None, planned):
            return f"the frontend routes in blocks of {in_force:g} tokens, the plan says {planned}"
        return ""

    async def _follow(self, number: int, prompt: str, first: Routed) -> Seen:
        """After a first prompt that was sent to a worker by its id: where do its repeat and its sibling go?"""
        if first.error:
            return Seen(f"no answer from {WHO} when asked by id ({first.error})")
        if first.worker != number:
            return Seen(f"the router passed over {WHO} when asked for it by id")
        repeat = Routed(None, None, None, 0)
        for wait in SETTLE_S:
            await asyncio.sleep(wait)
            repeat = await self._ask(prompt)
            if repeat.error:
                return Seen(f"a repeat for {WHO} failed ({repeat.error})")
            if repeat.hit is None:
                return Seen("the frontend reports no hit rate (nvext.timing.kv_hit_rate)")
            if repeat.worker == number and repeat.hit >= HIT:
                break
        else:
            return Seen(await self._why(number, prompt, repeat))
        sibling = await self._ask(prompt[: len(prompt) * 3 // 4] + " " + unseen(len(prompt.split()) // 4))
        if sibling.error:
            return Seen(f"a sibling for {WHO} failed ({sibling.error})")
        if sibling.worker != number or (sibling.hit or 0.0) < SIBLING_HIT:
            return Seen(
                f"a sibling of the prompt on {WHO} went to {self._name(sibling)} at a hit of {sibling.hit or 0:.2f}"
            )
        return Seen("", repeat.hit or 0.0, sibling.hit or 0.0, repeat.cached)

    async def _why(self, number: int, prompt: str, repeat: Routed) -> str:
        """Why a repeat did not find its prefix: is the index empty, or did the router choose otherwise?"""
        known = await self._ask(prompt, {self._pin: number})
        if (known.hit or 0.0) >= HIT:
            return f"the router knows the prefix on {WHO}, yet the repeat went to {self._name(repeat)}"
        card = self._registered.get(number)
        if card is not None and card.publishes is False:
            return f"KV events are switched off at {WHO}"
        return f"no KV events reach the router from {WHO}"

    def _name(self, routed: Routed) -> str:
        return self._workers.get(
            routed.worker or 0, f"worker {routed.worker:x}" if routed.worker else "nobody"
        )

    def _verdict(
        self, seen: Mapping[str, Seen], before: float, after: float, mismatched: float, in_force: float | None
    ) -> Proof:
        figures: dict[str, Any] = {
            "events_applied": int(after - before),
            "block_size_tokens": int(in_force) if in_force else None,
            "sources_missing": int(mismatched),
            "workers": {
                name: {"fault": found.fault.replace(WHO, name)}
                if found.fault
                else {
                    "hit": round(found.hit, 3),
                    "sibling_hit": round(found.sibling_hit, 3),
                    "cached_tokens": found.cached,
                }
                for name, found in seen.items()
            },
        }
        faults: dict[str, list[str]] = {}
        for name, found in seen.items():
            if found.fault:
                faults.setdefault(found.fault, []).append(name)
        if faults:
            text = "; ".join(fault.replace(WHO, _and(names)) for fault, names in faults.items())
            fix = (
                "kv.events: true, one kv.block_size, and the worker's log for its KV event publisher; "
                "`launcher status` tells whether the events process is well"
            )
            return failed(NAME, text, fix, **figures)
        if after <= before:
            return failed(
                NAME, "prefixes are found although no KV event was applied: the router predicts", **figures
            )
        hits = min(found.hit for found in seen.values())
        siblings = min(found.sibling_hit for found in seen.values())
        text = f"repeats found their prefix on {_and(list(seen))} (hit {hits:.2f}, siblings {siblings:.2f})"
        return passed(NAME, f"{text}, {int(after - before)} events applied", **figures)

    async def _ask(self, prompt: str, pin: Mapping[str, int] | None = None) -> Routed:
        """One short completion; nothing of it is a chat template's, so that the prompt is unknown from its start."""
        request = {
            "model": self._frontend.model,
            "prompt": prompt,
            "max_tokens": 4,
            "nvext": {"extra_fields": ["worker_id", "timing"], **(pin or {})},
        }
        return _routed(await self._frontend.post("/v1/completions", request, REQUEST_S))


def _routed(answer: Answer) -> Routed:
    if not answer.ok or not isinstance(answer.body, dict):
        return Routed(None, None, None, 0, str(answer))
    extra = answer.body.get("nvext") or {}
    workers, timing = extra.get("worker_id") or {}, extra.get("timing") or {}
    usage = answer.body.get("usage") or {}
    hit = timing.get("kv_hit_rate")
    return Routed(
        worker=workers.get("prefill_worker_id") or workers.get("decode_worker_id"),
        hit=float(hit) if isinstance(hit, int | float) else None,
        cached=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        prompt=usage.get("prompt_tokens") or 0,
    )


def unseen(words: int) -> str:
    """Words in an order that nobody has seen: at least as many tokens as words, in any vocabulary."""
    return " ".join(random.choices(WORDS, k=words))


def _stored(page: Any) -> float:
    """KV events of stored blocks that the router's index has taken."""
    if page is None:
        return 0.0
    values = page.values("dynamo_component_kv_cache_events_applied")
    return float(
        sum(
            value
            for labels, value in values
            if labels.get("event_type") == "stored" and labels.get("status") == "ok"
        )
    )


def _mismatched(page: Any) -> float:
    """Workers that the router waits for events of in vain; reported from Dynamo 1.4.2 on."""
    found = (
        page.total("dynamo_component_router_kv_event_source_mismatch_workers") if page is not None else None
    )
    return float(found or 0.0)


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
