"""What the frontend itself says: which workers it sees, whether the model can be routed to, one real completion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

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
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        return f"HTTP {self.status}{': ' + text[:200] if text and text != 'null' else ''}"


class Frontend:
    """A client of one frontend."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self.url = url.rstrip("/")
        self.model = model
        self._session = session

    async def get(self, path: str, timeout_s: float = PROBE_S) -> Answer:
        """GET a page; never raises for what the network or the server does."""
        return await self._request("GET", path, None, timeout_s)

    async def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        """POST a JSON body; never raises for what the network or the server does."""
        return await self._request("POST", path, body, timeout_s)

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> Answer:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.request(method, self.url + path, json=body, timeout=timeout) as response:
                text = await response.text(errors="replace")
                status = response.status
        except TimeoutError:
            return Answer(0, None, f"no answer in {timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(0, None, f"{type(error).__name__}: {error}")
        try:
            return Answer(status, json.loads(text) if text else None)
        except ValueError:
            return Answer(status, text)

    async def ports(self) -> tuple[set[int] | None, str]:
        """Request ports of the workers' `generate` endpoints that the frontend sees; None where it does not answer."""
        answer = await self.get("/health")
        if not answer.ok or not isinstance(answer.body, dict):
            return None, str(answer)
        found: set[int] = set()
        for instance in answer.body.get("instances") or ():
            if isinstance(instance, dict) and instance.get("endpoint") == "generate":
                port = _port(instance.get("transport"))
                if port is not None:
                    found.add(port)
        return found, ""

    async def routable(self) -> str:
        """Empty where the model can be routed to; else why not.

        `/v1/models` would list the name earlier, while requests still get 404 or 500.
        """
        answer = await self.get(f"/v1/models/{quote(self.model, safe='')}/ready")
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

    async def complete(self, timeout_s: float) -> str:
        """Empty where one real completion came back with at least one token; else what happened."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "Say that you are ready."}],
            "max_tokens": 16,
            "temperature": 0,
        }
        answer = await self.post("/v1/chat/completions", body, timeout_s)
        if not answer.ok:
            return str(answer)
        usage = answer.body.get("usage") if isinstance(answer.body, dict) else None
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if not isinstance(tokens, int) or tokens < 1:
            return f"an answer without a token: {answer}"
        return ""


def _port(transport: Any) -> int | None:
    """`{"tcp": "127.0.0.1:24002/..."}` or the string alone."""
    address = transport.get("tcp") if isinstance(transport, dict) else transport
    if not isinstance(address, str):
        return None
    digits = address.removeprefix("tcp://").partition("/")[0].rpartition(":")[2]
    return int(digits) if digits.isdecimal() else None
