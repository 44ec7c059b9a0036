"""The admin server: probes for the kubelet, status for people and scripts. Read-only."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the server's answers come from."""

    reasons: Callable[[], list[str]]
    """Why the deployment is not ready; empty where it is."""
    started: Callable[[], bool]
    """Whether it has been ready once."""
    status: Callable[[], dict[str, Any]]
    metrics: Callable[[], Awaitable[str]]
    failed: Callable[[str], None] = lambda text: None
    """Told of a page that could not be made."""


class Admin:
    """`/livez`, `/startupz`, `/readyz`, `/status`, `/metrics`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._runner: web.AppRunner | None = None

    async def start(self, listeners: Sequence[socket.socket]) -> None:
        """Answer on sockets that listen (see `listener.listen`); they are closed with the server."""
        # Nothing here reads a body: whoever sends one gets 405 before it is taken.
        app = web.Application(middlewares=[self._answer_errors], client_max_size=1024)
        handlers: dict[str, _Handler] = {
            "/": self._index,
            "/livez": self._livez,
            "/startupz": self._startupz,
            "/readyz": self._readyz,
            "/status": self._status,
            "/metrics": self._metrics,
        }
        for path, handler in handlers.items():
            app.router.add_get(path, handler)
        # No access log: a kubelet asks every second.
        self._runner = web.AppRunner(
            app, access_log=None, logger=_server_log(), handle_signals=False, shutdown_timeout=1.0
        )
        await self._runner.setup()
        for each in listeners:
            await web.SockSite(self._runner, each).start()

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Plain text for what is not there or not allowed; a fault of ours is told to the log, not to the client."""
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            response = web.Response(status=404, text=f"no such page; there are {' '.join(_paths(request))}\n")
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = web.Response(
                status=405, headers={"Allow": allowed}, text=f"read-only: {allowed} only\n"
            )
        except web.HTTPException:
            raise
        except Exception as error:  # whatever it was, the next probe needs an answer
            self._pages.failed(f"admin page {request.path} failed: {type(error).__name__}: {error}")
            response = web.Response(status=500, text="the launcher could not make this page; see its log\n")
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{path}\n" for path in _paths(request)))

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
        body = await self._pages.metrics()
        return web.Response(body=body.encode(), headers={"Content-Type": METRICS_TYPE})


def _server_log() -> logging.Logger:
    """What aiohttp has to say of this server: a client that speaks no HTTP is no fault of ours, and worth one line."""
    log = logging.getLogger("launcher.admin")
    if not log.filters:
        log.addFilter(_mild)
    return log


def _mild(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        # aiohttp would show a traceback of its own parser for each connection of a port scan.
        client = record.args[0] if isinstance(record.args, tuple) and record.args else "somebody"
        record.msg, record.args = (
            "%s sent no HTTP request (%s), answered %d",
            (
                client,
                type(error).__name__,
                error.code,
            ),
        )
        record.exc_info = None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


def _paths(request: web.Request) -> list[str]:
    return [resource.canonical for resource in request.app.router.resources() if resource.canonical != "/"]


def _answer(reasons: list[str]) -> web.Response:
    if not reasons:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="".join(f"{reason}\n" for reason in reasons))
