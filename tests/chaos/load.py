"""A steady load of streamed chat completions, and what became of each request."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import aiohttp

CONNECT_S = 5.0
"""A connection that is not there by then counts as refused."""
STALL_S = 30.0
"""A stream that is silent for this long is given up and counts as cut."""


@dataclass(slots=True)
class Request:
    """One request; times are monotonic seconds."""

    began: float
    client: int = 0
    ended: float = 0.0
    outcome: str = ""
    """`ok`, `refused`, `http NNN`, `cut` (ended without its last event), `error` (an error event), `stalled` (silent
    for `stall_s`)."""
    detail: str = ""
    tokens: int = 0
    gap_s: float = 0.0
    """The longest silence, the wait for the first token included; of a stalled one, its last too."""
    heard: float = 0.0
    """When it was last heard of: sent, connected and answered, or given a line."""

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


class Load:
    """`streams` clients at a time, each sending its next request when the last has ended; a context manager.

    Prompts differ in their beginning, so that KV-aware routing spreads them over all workers.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        streams: int,
        tokens: int = 128,
        words: int = 40,
        stall_s: float = STALL_S,
        again_s: float = 0.02,
    ) -> None:
        """`again_s`: pause of a client after a request that failed, lest it spin."""
        self.requests: list[Request] = []
        self._under_way: dict[int, Request] = {}
        self._url = f"{url}/v1/chat/completions"
        self._model = model
        self._streams = streams
        self._tokens = tokens
        self._words = words
        self._stall_s = stall_s
        self._again_s = again_s
        self._stopping = threading.Event()
        self._running = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="load", daemon=True)
        self._number = 0

    def __enter__(self) -> Load:
        self._thread.start()
        self._running.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self, timeout_s: float = 120.0) -> list[Request]:
        """Send nothing more, wait for what is under way; returns all requests."""
        self._stopping.set()
        self._thread.join(timeout_s)
        return self.requests

    def silent(self, seconds: float) -> list[Request]:
        """The requests under way that have not been heard of for so long."""
        before = time.monotonic() - seconds
        return [each for each in list(self._under_way.values()) if each.heard < before]

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
            clients = [asyncio.create_task(self._client(session, number)) for number in range(self._streams)]
            self._running.set()
            await asyncio.gather(*clients)

    async def _client(self, session: aiohttp.ClientSession, client: int) -> None:
        while not self._stopping.is_set():
            self._number += 1
            began = time.monotonic()
            request = self._under_way[client] = Request(began, client, heard=began)
            await self._one(session, request, self._number)
            request.ended = time.monotonic()
            del self._under_way[client]
            self.requests.append(request)
            if not request.ok:
                await asyncio.sleep(self._again_s)

    async def _one(self, session: aiohttp.ClientSession, request: Request, number: int) -> None:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": f"{number} " * self._words}],
            "max_tokens": self._tokens,
            "stream": True,
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=self._stall_s)
        try:
            async with session.post(self._url, json=body, timeout=timeout) as response:
                if response.status != 200:
                    request.outcome = f"http {response.status}"
                    request.detail = (await response.text(errors="replace"))[:300]
                    return
                await self._read(response, request)
        except aiohttp.ConnectionTimeoutError:
            request.outcome, request.detail = "refused", f"no connection in {CONNECT_S:g} s"
        except TimeoutError:
            request.outcome = "stalled"
            request.gap_s = max(request.gap_s, time.monotonic() - request.heard)
        except aiohttp.ClientConnectorError as error:
            request.outcome, request.detail = "refused", str(error)
        except (aiohttp.ClientError, OSError) as error:
            request.outcome, request.detail = "cut", f"{type(error).__name__}: {error}"

    async def _read(self, response: aiohttp.ClientResponse, request: Request) -> None:
        last, failed = time.monotonic(), ""
        request.heard = last
        async for raw in response.content:
            now = request.heard = time.monotonic()
            line = raw.decode(errors="replace").strip()
            if line.startswith(("event: error", ": error")) or '"error"' in line[:40]:
                failed = line[:300]
            if not line.startswith("data:"):
                continue
            request.gap_s, last = max(request.gap_s, now - last), now
            payload = line.removeprefix("data:").strip()
            if payload == "[DONE]":
                request.outcome = "error" if failed else "ok"
                request.detail = failed
                return
            request.tokens += _has_token(payload)
        request.outcome, request.detail = "cut", failed


def _has_token(payload: str) -> bool:
    try:
        choices: list[Any] = json.loads(payload).get("choices") or []
    except (ValueError, AttributeError):
        return False
    return any((choice.get("delta") or {}).get("content") for choice in choices)


def tally(requests: list[Request]) -> Counter[str]:
    """Outcome to count."""
    return Counter(request.outcome for request in requests)


def bad(requests: list[Request]) -> list[Request]:
    """Those that did not end well."""
    return [request for request in requests if not request.ok]


def short(requests: list[Request], tokens: int) -> int:
    """Streams that ended well with fewer tokens than asked for: a cut that hides."""
    return sum(1 for request in requests if request.ok and request.tokens < tokens)
