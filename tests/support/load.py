"""Steady load on one or several frontends, and what became of each request."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

TIMEOUT_S = 30.0
"""A request that takes longer has failed: no answer of these tests takes a quarter of it."""
PAUSE_S = 0.2
"""After a failure, so that a refused connection does not count a thousand times."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; times in seconds since the load began."""

    began: float
    ended: float
    error: str = ""
    """Empty where the stream ended with `[DONE]`."""


@dataclass(slots=True)
class Load:
    """So many streams at a time, until stopped; a context manager."""

    urls: Sequence[str]
    model: str
    concurrency: int = 16
    tokens: int = 64
    requests: list[Request] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    began_at: float = 0.0

    def __enter__(self) -> Load:
        self.began_at = time.monotonic()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Begin no more requests and wait for those under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(TIMEOUT_S + 10)

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self.began_at

    def failures(self) -> list[Request]:
        """The requests that failed."""
        return [request for request in self.requests if request.error]

    def summary(self, since: float = 0.0) -> dict[str, Any]:
        """Figures of the requests that ended after `since`, which is when something was done to the deployment."""
        counted = [request for request in self.requests if request.ended >= since]
        bad = [request for request in counted if request.error]
        kinds = Counter(request.error for request in bad)
        return {
            "requests": len(counted),
            "failed": len(bad),
            "errors": dict(kinds.most_common(5)),
            "first_failure_s": round(min(each.ended for each in bad) - since, 2) if bad else None,
            "last_failure_s": round(max(each.ended for each in bad) - since, 2) if bad else None,
            "slowest_s": round(max((each.ended - each.began for each in counted), default=0.0), 2),
        }

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=False) as session:
            await asyncio.gather(*(self._client(session, number) for number in range(self.concurrency)))

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        turn = number
        while not self._stop.is_set():
            began = self.now
            error = await self._ask(session, self.urls[turn % len(self.urls)], f"client {number} turn {turn}")
            self.requests.append(Request(began, self.now, error))
            turn += 1
            if error:
                await asyncio.sleep(PAUSE_S)

    async def _ask(self, session: aiohttp.ClientSession, url: str, text: str) -> str:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": self.tokens,
            "stream": True,
        }
        try:
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                if response.status != 200:
                    return f"HTTP {response.status}"
                done = False
                async for raw in response.content:
                    if raw.startswith(b"data: [DONE]"):
                        done = True
                    elif b'"error"' in raw[:40] or raw.startswith(b"event: error"):
                        return "error in the stream"
                return "" if done else "stream cut"
        except TimeoutError:
            return f"no end in {TIMEOUT_S:g} s"
        except (aiohttp.ClientError, OSError, json.JSONDecodeError) as error:
            return type(error).__name__
