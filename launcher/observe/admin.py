"""The admin server: probes for the kubelet, status for people and scripts. Read-only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from launcher.findings import Exit, Finding, LauncherError


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the server's answers come from."""

    reasons: Callable[[], list[str]]
    """Why the deployment is not ready; empty where it is."""
    started: Callable[[], bool]
    """Whether it has been ready once."""
    status: Callable[[], dict[str, Any]]
    metrics: Callable[[], Awaitable[str]] | None = None


class Admin:
    """`/livez`, `/startupz`, `/readyz`, `/status`, `/metrics`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises LauncherError where that is not possible."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/startupz", self._startupz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/status", self._status)
        if self._pages.metrics is not None:
            app.router.add_get("/metrics", self._metrics)
        # No access log: a kubelet asks every second.
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, shutdown_timeout=1.0).start()
        except OSError as error:
            await self.close()
            raise LauncherError(
                Finding(
                    code="port-taken",
                    what=f"the admin server cannot listen on {host}:{port}: {error.strerror or error}",
                    where="--admin-port",
                    fix="choose another --admin-port or --admin-host",
                ),
                Exit.USAGE,
            ) from None

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _livez(self, request: web.Request) -> web.Response:
        # That this line runs is the answer: a loading or draining deployment is no reason to kill the launcher.
        return web.Response(text="ok\n")

    async def _startupz(self, request: web.Request) -> web.Response:
        return _answer([] if self._pages.started() else self._pages.reasons() or ["starting"])

    async def _readyz(self, request: web.Request) -> web.Response:
        return _answer(self._pages.reasons())

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self._pages.status())

    async def _metrics(self, request: web.Request) -> web.Response:
        assert self._pages.metrics is not None
        body = await self._pages.metrics()
        return web.Response(
            body=body.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )


def _answer(reasons: list[str]) -> web.Response:
    if not reasons:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="".join(f"{reason}\n" for reason in reasons))
