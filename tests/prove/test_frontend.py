"""What is asked of a frontend, and what is not."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from launcher.prove.frontend import Frontend


@pytest.mark.parametrize("listed", [True, False])
def test_a_model_is_not_asked_for_before_it_is_listed(listed: bool) -> None:
    """Dynamo writes an error for each such question: several a second, for as long as an engine loads."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "m"}] if listed else []})
        return web.json_response({"ready": True})

    async def main() -> str:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession(trust_env=False) as session:
            said = await Frontend(session, f"http://127.0.0.1:{runner.addresses[0][1]}", "m").routable()
        await runner.cleanup()
        return said

    assert asyncio.run(main()) == ("" if listed else "the frontend does not know m yet")
    assert asked == (["/v1/models", "/v1/models/m/ready"] if listed else ["/v1/models"])
