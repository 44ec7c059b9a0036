"""What the frontend itself says: which workers it sees, whether the model can be routed to, and its answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from launcher.checks.reach import said
from launcher.observe import exposition

LONGEST_BODY = 80
"""Characters shown of a refusal that has no message for people."""
PROBE_S = 5.0
"""For a status page of the frontend."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request got: the HTTP status (0 where there was no answer) and the body, or why there is none."""

    status: int
    body: Any
    error: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def __str__(self) -> str:
        if self.error:
            return self.error
        text = _said(self.body, 200 if self.ok else LONGEST_BODY)
        return f"HTTP {self.status}{': ' + text if text else ''}"


class Frontend:
    """A client of one frontend."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self.url = url.rstrip("/")
        self.model = model
        self._session = session

    async def get(self, path: str, timeout_s: float = PROBE_S) -> Answer:
        """GET a page; never raises for what the network or the server does."""
        return await self._request("GET", path, None, timeout_s)

    async def post(self, path: str, body: Mapping[str, Any] | bytes, timeout_s: float) -> Answer:
        """POST a JSON body, or bytes as they are; never raises for what the network or the server does."""
        return await self._request("POST", path, body, timeout_s)

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | bytes | None, timeout_s: float
    ) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        try:
            async with self._session.request(
                method,
                self.url + path,
                data=data,
                headers={"Content-Type": "application/json"} if data is not None else None,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as response:
                text = await response.text(errors="replace")
                status = response.status
        except TimeoutError:
            return Answer(0, None, f"no answer in {timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(0, None, said(error))
        try:
            return Answer(status, json.loads(text) if text else None)
        except ValueError:
            return Answer(status, text)

    async def stream(self, path: str, body: Mapping[str, Any], timeout_s: float) -> AsyncIterator[str]:
        """The `data:` payloads of a streamed answer, `[DONE]` too. Raises StreamError where there is none."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.post(self.url + path, json=body, timeout=timeout) as response:
                kind = response.headers.get("Content-Type", "")
                if response.status != 200 or "text/event-stream" not in kind:
                    text = await response.text(errors="replace")
                    raise StreamError(f"HTTP {response.status} {kind}: {text[:200]}")
                async for raw in response.content:
                    line = raw.decode(errors="replace").strip()
                    if line.startswith("data:"):
                        yield line.removeprefix("data:").strip()
        except TimeoutError:
            raise StreamError(f"the stream did not end in {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise StreamError(said(error)) from None

    async def metrics(self, url: str = "") -> exposition.Page | None:
        """The figures on `/metrics` of the frontend, or of another process at `url`; None where there are none."""
        timeout = aiohttp.ClientTimeout(total=PROBE_S)
        try:
            async with self._session.get(f"{url or self.url}/metrics", timeout=timeout) as response:
                if response.status != 200:
                    return None
                return exposition.parse(await response.text(errors="replace"))
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
            return None

    async def instances(self) -> tuple[list[Instance] | None, str]:
        """The workers' `generate` endpoints that the frontend sees; None, and why, where it does not answer."""
        answer = await self.get("/health")
        if not answer.ok or not isinstance(answer.body, dict):
            return None, str(answer)
        found = []
        for entry in answer.body.get("instances") or ():
            if isinstance(entry, dict) and entry.get("endpoint") == "generate":
                number = entry.get("instance_id")
                if isinstance(number, int):
                    found.append(
                        Instance(number, str(entry.get("component")), *_address(entry.get("transport")))
                    )
        return found, ""

    async def model_page(self, timeout_s: float = PROBE_S) -> Answer:
        """Whether, and by how many workers, the model is served: its `ready` page; 404 where it is not known.

        Who asks for it before the frontend lists the model writes an error into its log, several a second while an
        engine loads. So the list is asked first.
        """
        listed = await self.get("/v1/models", timeout_s)
        models = listed.body.get("data") if listed.ok and isinstance(listed.body, dict) else None
        if isinstance(models, list):
            names = [each.get("id") for each in models if isinstance(each, dict)]
            if self.model not in names:
                return Answer(404, None)
        return await self.get(f"/v1/models/{quote(self.model, safe='')}/ready", timeout_s)

    async def routable(self) -> str:
        """Empty where the model can be routed to; else why not.

        `/v1/models` would list the name earlier, while requests still get 404 or 500.
        """
        answer = await self.model_page()
        if answer.status == 404:
            return f"the frontend does not know {self.model} yet"
        if not answer.ok or not isinstance(answer.body, dict):
            return f"the frontend cannot say whether {self.model} is ready ({answer})"
        if answer.body.get("ready") is True:
            return ""
        missing: list[str] = []
        for namespace in (answer.body.get("namespaces") or {}).values():
            if isinstance(namespace, dict):
                missing += [str(role) for role in namespace.get("missing_worker_types") or ()]
        lacking = f", it lacks {' and '.join(missing)} workers" if missing else ""
        return f"the frontend cannot route {self.model} yet{lacking}"


def _said(body: Any, most: int) -> str:
    """What a body says to a person: its message where it has one, else its beginning."""
    if body is None:
        return ""
    if isinstance(body, dict):
        for key in ("message", "error", "detail"):
            found = body.get(key)
            if isinstance(found, dict):
                found = found.get("message")
            if isinstance(found, str) and found:
                return found[:200]
    text = " ".join((body if isinstance(body, str) else json.dumps(body)).split())
    return text if len(text) <= most else f"{text[:most]}..."


class StreamError(Exception):
    """A stream that did not start, or did not end."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A worker as the frontend knows it."""

    number: int
    """Its id, by which a request can be sent to it."""
    component: str
    """`prefill` or `backend`."""
    host: str
    port: int | None
    """Where it takes requests."""


def _address(transport: Any) -> tuple[str, int | None]:
    """`{"tcp": "127.0.0.1:24002/..."}` or the string alone."""
    address = transport.get("tcp") if isinstance(transport, dict) else transport
    if not isinstance(address, str):
        return "", None
    host, _, digits = address.removeprefix("tcp://").partition("/")[0].rpartition(":")
    return host, int(digits) if digits.isdecimal() else None
