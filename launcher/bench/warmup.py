"""A few requests before the measured ones, one after the other, with content that nothing else has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import aiohttp

from launcher.prove.frontend import Frontend

ISL, OSL = 8000, 1000
"""Tokens of a warm-up request in the public recipe, about."""
TIMEOUT_S = 1200.0


def warm(url: str, model: str, count: int, seed: int, tell: Callable[[str], None], *, longest: int) -> None:
    """Send `count` requests, at most `longest` tokens each; a failure is told and does not end the run.

    A kernel that is compiled or captured for the first batch of its shape is no property of the deployment.
    """
    if count < 1:
        return
    isl, osl = min(ISL, longest // 2), min(OSL, longest // 4)

    async def send() -> None:
        dice = random.Random(f"warm-up {seed}")
        async with aiohttp.ClientSession(trust_env=False) as session:
            frontend = Frontend(session, url, model)
            for number in range(count):
                # Two hexadecimal digits and a space: about a token each, and no two prompts begin alike.
                words = " ".join(f"{dice.randrange(256):02x}" for _ in range(isl // 2))
                body = {
                    "model": model,
                    "messages": [{"role": "user", "content": words}],
                    "max_tokens": osl,
                    "ignore_eos": True,
                }
                answer = await frontend.post("/v1/chat/completions", body, TIMEOUT_S)
                if not answer.ok:
                    tell(f"warm-up request {number + 1} of {count}: {answer}")

    tell(f"warm-up: {count} requests")
    asyncio.run(send())
