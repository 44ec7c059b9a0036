"""A client of etcd v3 by its JSON gateway: the few calls that a launcher needs, and no dependency for them.

Endpoints, user and password are those that Dynamo's runtime reads: ETCD_ENDPOINTS, ETCD_AUTH_USERNAME and
ETCD_AUTH_PASSWORD. ETCD_AUTH_CA, ETCD_AUTH_CLIENT_CERT and ETCD_AUTH_CLIENT_KEY name files, as Dynamo's documentation
has it; see `launcher.engines.etcd_gate` for what its runtime makes of them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

TIMEOUT_S = 2.0
"""For one call to one endpoint."""


class EtcdError(Exception):
    """No endpoint gave an answer that can be used; the text says what each of them said."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A key with its value and the lease that it lives by (0 without)."""

    key: str
    value: bytes
    lease: int

    def json(self) -> dict[str, Any]:
        """The value as a JSON object; empty where it is none."""
        try:
            body = json.loads(self.value)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}


class Etcd:
    """Make it, use it and close it in one event loop."""

    def __init__(self, endpoints: Sequence[str], environ: Mapping[str, str]) -> None:
        self._endpoints = [each.rstrip("/") for each in endpoints]
        self._user = environ.get("ETCD_AUTH_USERNAME", "")
        self._password = environ.get("ETCD_AUTH_PASSWORD", "")
        self._token = ""
        self._environ = environ
        self._ssl: ssl.SSLContext | bool = True
        self._secure = any(each.startswith("https:") for each in self._endpoints)
        if self._secure:
            self._ssl = tls(environ)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Give up the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def range(self, prefix: str) -> list[Pair]:
        """Every key that begins with the prefix."""
        start = prefix.encode()
        end = start[:-1] + bytes([start[-1] + 1])
        answer = await self._call("kv/range", {"key": _b64(start), "range_end": _b64(end)})
        return [
            Pair(
                base64.b64decode(each["key"]).decode(errors="replace"),
                base64.b64decode(each.get("value", "")),
                int(each.get("lease", 0)),
            )
            for each in answer.get("kvs", ())
        ]

    async def put(self, key: str, value: bytes, lease: int) -> None:
        """Write a key that goes when its lease does."""
        body = {"key": _b64(key.encode()), "value": _b64(value), "lease": str(lease)}
        await self._call("kv/put", body)

    async def grant(self, ttl_s: int) -> int:
        """A new lease."""
        return int((await self._call("lease/grant", {"TTL": str(ttl_s)}))["ID"])

    async def keep_alive(self, lease: int) -> bool:
        """Renew a lease; False where it is no more."""
        answer = await self._call("lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def time_to_live(self, lease: int) -> int:
        """Seconds until a lease ends where nobody renews it; negative where it is no more."""
        return int((await self._call("lease/timetolive", {"ID": str(lease)})).get("TTL", 0))

    async def revoke(self, lease: int) -> bool:
        """End a lease, and every key that lives by it; False where it was gone already."""
        try:
            await self._call("lease/revoke", {"ID": str(lease)})
        except _Refused as error:
            if "lease not found" in str(error):
                return False
            raise
        return True

    async def _call(self, path: str, body: Mapping[str, Any], *, again: bool = True) -> dict[str, Any]:
        if self._user and not self._token and path != "auth/authenticate":
            answer = await self._call(
                "auth/authenticate", {"name": self._user, "password": self._password}, again=False
            )
            self._token = str(answer.get("token", ""))
        said = []
        for endpoint in list(self._endpoints):
            try:
                return await self._post(f"{endpoint}/v3/{path}", body)
            except _Refused as error:
                if self._token and again and "token" in str(error):
                    self._token = ""  # It has expired; simple tokens last five minutes.
                    return await self._call(path, body, again=False)
                raise
            except TimeoutError:
                said.append(f"{endpoint}: no answer in {TIMEOUT_S:g} s")
            except (aiohttp.ClientError, OSError, ValueError) as error:
                said.append(f"{endpoint}: {error or type(error).__name__}")
                if self._secure:
                    # A renewed certificate is in the same files.
                    with contextlib.suppress(OSError):
                        self._ssl = tls(self._environ)
            # The next call begins with one that answers.
            self._endpoints.append(self._endpoints.pop(0))
        raise EtcdError("; ".join(said) or "no endpoint of etcd is given")

    async def _post(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                trust_env=False, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
            )
        headers = {"Authorization": self._token} if self._token else None
        async with self._session.post(url, json=body, headers=headers, ssl=self._ssl) as response:
            text = await response.text(errors="replace")
        # A keepalive answers with a stream of objects, one a line.
        lines = text.splitlines() or [""]
        try:
            answer = json.loads(lines[0])
        except ValueError:
            answer = None
        if response.status == 200 and isinstance(answer, dict) and "error" not in answer:
            return answer
        message = answer.get("error") if isinstance(answer, dict) else text[:200]
        raise _Refused(f"{url}: {message or f'HTTP {response.status}'}")


class _Refused(EtcdError):
    """An endpoint answered, and said no: another one would say the same."""


def tls(environ: Mapping[str, str]) -> ssl.SSLContext:
    """What to trust and what to show; OSError where a file cannot be read."""
    context = ssl.create_default_context(cafile=environ.get("ETCD_AUTH_CA") or None)
    certificate = environ.get("ETCD_AUTH_CLIENT_CERT")
    if certificate:
        context.load_cert_chain(certificate, environ.get("ETCD_AUTH_CLIENT_KEY") or None)
    return context


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
