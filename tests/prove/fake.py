"""A frontend that is not there: the API, the router's index and the workers' counters in one small server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from launcher.prove.frontend import Frontend

MODEL = "openai/gpt-oss-120b"
BLOCK = 16


@dataclass
class Worker:
    """A worker behind the fake router."""

    number: int
    component: str
    port: int
    publishes: bool = True
    answers: bool = True
    moved: float = 0.0
    """Bytes that its NIXL counters say it has read."""


@dataclass
class Fake:
    """Behaves well until told otherwise."""

    workers: list[Worker]
    block_in_force: int = BLOCK
    misroutes: bool = False
    """The router knows the prefix and sends the request elsewhere all the same."""
    predicts: bool = False
    reports_hits: bool = True
    counters: bool = True
    moves: float = 2e6
    """Bytes that each handover moves, in a millisecond."""
    message: dict[str, Any] = field(default_factory=lambda: {"content": "hi", "reasoning_content": "hm"})
    finish_reason: str = "stop"
    draining: bool = False
    """Everything is answered with 503, as by a frontend that takes nothing new."""
    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    _index: dict[int, set[tuple[str, ...]]] = field(default_factory=dict)
    _stored: int = 0

    @property
    def prefill(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.component == "prefill"] or self.workers

    def blocks(self, prompt: str) -> list[tuple[str, ...]]:
        """Each block with all that is before it: equal blocks of other prefixes differ."""
        words = prompt.split()
        return [tuple(words[: end + BLOCK]) for end in range(0, len(words) - BLOCK + 1, BLOCK)]

    def hit(self, worker: Worker, prompt: str) -> float:
        known = self._index.get(worker.number, set())
        blocks = self.blocks(prompt)
        return sum(block in known for block in blocks) / max(1, len(blocks))

    async def health(self, request: web.Request) -> web.Response:
        entries = [
            {
                "component": worker.component,
                "endpoint": "generate",
                "instance_id": worker.number,
                "transport": {"tcp": f"127.0.0.1:{worker.port}/x"},
            }
            for worker in self.workers
        ]
        return web.json_response({"instances": entries})

    async def metrics(self, request: web.Request) -> web.Response:
        lines = [
            f'dynamo_frontend_model_kv_cache_block_size{{model="{MODEL}"}} {self.block_in_force}',
            "dynamo_component_router_kv_hit_rate_count 1",
            f'dynamo_component_kv_cache_events_applied{{event_type="stored",status="ok"}} {self._stored}',
            'dynamo_component_kv_cache_events_applied{event_type="removed",status="ok"} 5',
        ]
        return web.Response(text="\n".join(lines) + "\n")

    async def worker_metrics(self, request: web.Request) -> web.Response:
        worker = next(worker for worker in self.workers if worker.number == int(request.match_info["number"]))
        lines = ["vllm:num_requests_running 0"] if self.counters else ["other 1"]
        if worker.moved:
            lines += [
                f"vllm:nixl_bytes_transferred_sum {worker.moved}",
                f"vllm:nixl_xfer_time_seconds_sum {worker.moved / 2e9}",
            ]
        return web.Response(text="\n".join(lines) + "\n")

    async def completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.seen.append(body)
        extra, prompt = body.get("nvext") or {}, body["prompt"]
        pinned = extra.get("prefill_worker_id") or extra.get("backend_instance_id")
        if pinned is not None:
            chosen = next(worker for worker in self.workers if worker.number == pinned)
        else:
            chosen = max(self.prefill, key=lambda worker: self.hit(worker, prompt))
            if self.misroutes:
                chosen = self.prefill[0]
        if not chosen.answers:
            return web.json_response({"message": "Invalid request", "code": 400}, status=400)
        decode = extra.get("decode_worker_id") or self.workers[-1].number
        hit = self.hit(chosen, prompt)
        if chosen.publishes or self.predicts:
            known = self._index.setdefault(chosen.number, set())
            fresh = set(self.blocks(prompt)) - known
            known |= fresh
            self._stored += bool(fresh) and not self.predicts
        if self.counters:
            next(worker for worker in self.workers if worker.number == decode).moved += self.moves
        timing = {"kv_hit_rate": hit} if self.reports_hits else {}
        return web.json_response(
            {
                "choices": [{"text": "and so on", "index": 0}],
                "usage": {"prompt_tokens": len(prompt.split()), "completion_tokens": 4, "total_tokens": 0},
                "nvext": {
                    "worker_id": {"prefill_worker_id": chosen.number, "decode_worker_id": decode},
                    "timing": timing | {"kv_transfer_estimated_latency_ms": 1.5},
                },
            }
        )

    async def chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except ValueError:
            return web.json_response({"message": "no JSON"}, status=400)
        self.seen.append(body)
        if body.get("model") != MODEL:
            return web.json_response({"message": "Model not found"}, status=404)
        if "messages" not in body or body.get("max_tokens") == "many" or body.get("temperature") == 99:
            return web.json_response({"error": {"message": "wrong"}}, status=400)
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if body.get("stream"):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for chunk in (
                {"choices": [{"delta": {"role": "assistant", **self.message}}]},
                {"choices": [{"delta": {}, "finish_reason": self.finish_reason}]},
                {"choices": [], "usage": usage},
            ):
                await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await response.write(b"data: [DONE]\n\n")
            return response
        choice = {"message": {"role": "assistant", **self.message}, "finish_reason": self.finish_reason}
        return web.json_response({"choices": [choice], "usage": usage})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL}]})


@asynccontextmanager
async def serving(fake: Fake) -> AsyncIterator[Frontend]:
    """The fake on a port of its own, and a client of it."""

    @web.middleware
    async def drain(request: web.Request, handler: Handler) -> web.StreamResponse:
        return (
            web.json_response({"message": "later"}, status=503) if fake.draining else await handler(request)
        )

    app = web.Application(middlewares=[drain])
    app.router.add_get("/health", fake.health)
    app.router.add_get("/metrics", fake.metrics)
    app.router.add_get("/worker/{number}/metrics", fake.worker_metrics)
    app.router.add_get("/v1/models", fake.models)
    app.router.add_post("/v1/completions", fake.completions)
    app.router.add_post("/v1/chat/completions", fake.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with aiohttp.ClientSession() as session:
            yield Frontend(session, fake.url, MODEL)
    finally:
        await runner.cleanup()
