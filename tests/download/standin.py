"""A stand-in for the Hugging Face hub that speaks its HTTP API, on loopback, with faults on request."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "b5c939de8f754692c1647ca79fbf85e8c1e70f8a"
MODEL = "openai/gpt-oss-120b"
LARGE = 100_000
"""Bytes from which a file is kept with LFS here."""


@dataclass
class Repo:
    """One model of the hub."""

    files: dict[str, bytes]
    commit: str = COMMIT
    gated: bool = False
    token: str | None = None
    """The only token that may read it."""

    def large(self, name: str) -> bool:
        return len(self.files[name]) >= LARGE

    def etag(self, name: str) -> str:
        content = self.files[name]
        if self.large(name):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Fault:
    """What goes wrong, for the next `times` requests whose path contains `path`."""

    path: str
    times: int
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    after: int | None = None
    """Close the connection after this many bytes of the body."""
    replace: bytes | None = None
    """Send this content instead, under the right headers."""


@dataclass(frozen=True)
class Seen:
    """One request as it came in."""

    method: str
    path: str
    range: str
    authorization: str
    sent: list[int]
    """Bytes of body sent, in its first element."""


class Hub:
    """The hub's API on one port and its content server on another, as in real life."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.bytes_per_s = 0.0
        self.ignore_range = False
        self._lock = threading.Lock()
        # Another address, because clients send their token on to the same one.
        self._servers = [self._serve("127.0.0.1", _Api), self._serve("127.0.0.2", _Content)]
        self.url = f"http://127.0.0.1:{self._servers[0].server_port}"
        self.content_url = f"http://127.0.0.2:{self._servers[1].server_port}"

    def _serve(self, address: str, handler: type[_Base]) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer((address, 0), type("Bound", (handler,), {"hub": self}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def fault(self, path: str, times: int = 1, **values: Any) -> None:
        self.faults.append(Fault(path, times, **values))

    def take_fault(self, path: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.path in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def requests(self, part: str, method: str = "GET") -> list[Seen]:
        return [seen for seen in self.seen if part in seen.path and seen.method == method]

    def blob(self, digest: str) -> bytes | None:
        for repo in self.repos.values():
            for name, content in repo.files.items():
                if repo.etag(name) == digest:
                    return content
        return None


class _Base(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    sent: list[int]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def _handle(self) -> None:
        self.sent = [0]
        self.hub.seen.append(
            Seen(
                self.command,
                self.path,
                self.headers.get("Range", ""),
                self.headers.get("Authorization", ""),
                self.sent,
            )
        )
        self.fault = self.hub.take_fault(self.path)
        try:
            if self.fault is not None and self.fault.status:
                self.reply(self.fault.status, self.fault.headers, b"{}")
            else:
                self.answer(unquote(urlsplit(self.path).path))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, path: str) -> None:
        raise NotImplementedError

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.send_body(body)

    def send_body(self, body: bytes) -> None:
        limit = len(body)
        if self.fault is not None and self.fault.after is not None:
            limit = min(limit, self.fault.after)
        step = 64 << 10
        for start in range(0, limit, step):
            piece = body[start : min(start + step, limit)]
            self.wfile.write(piece)
            self.sent[0] += len(piece)
            if self.hub.bytes_per_s:
                time.sleep(len(piece) / self.hub.bytes_per_s)
        if limit < len(body):
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def content(self, body: bytes, headers: dict[str, str]) -> None:
        """A file, or the part of it that was asked for."""
        if self.fault is not None and self.fault.replace is not None:
            body = self.fault.replace
        asked = self.headers.get("Range", "")
        if not asked or self.hub.ignore_range:
            self.reply(200, headers | {"Accept-Ranges": "bytes"}, body)
            return
        start = int(asked.removeprefix("bytes=").split("-")[0])
        if start >= len(body):
            self.reply(416, {"Content-Range": f"bytes */{len(body)}"}, b"")
            return
        part = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
        self.reply(206, headers | part, body[start:])


class _Api(_Base):
    """`/api/models/…` and `/ORG/NAME/resolve/REVISION/FILE`."""

    def answer(self, path: str) -> None:
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        model = "/".join(parts[2:4] if api else parts[:2])
        repo = self.hub.repos.get(model)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token == "hf_wrong":
            self.error(401, "", "Invalid credentials in Authorization header")
        elif repo is None or (repo.token is not None and token != repo.token and not repo.gated):
            # The hub tells nobody which private models exist.
            self.error(404 if token else 401, "RepoNotFound", "Repository not found")
        elif repo.gated and token != repo.token:
            self.error(403 if token else 401, "GatedRepo", f"Access to model {model} is restricted.")
        elif api:
            self.api(repo, model, parts[4:])
        else:
            self.resolve(repo, parts[3], "/".join(parts[4:]))

    def api(self, repo: Repo, model: str, rest: list[str]) -> None:
        if rest and rest[1] not in ("main", repo.commit):
            self.error(404, "RevisionNotFound", f"Invalid rev id: {rest[1]}")
        elif rest[:1] == ["tree"]:
            self.json([self.file(repo, name) for name in sorted(repo.files)])
        else:
            siblings = []
            for name in sorted(repo.files):
                entry = self.file(repo, name)
                sibling = {"rfilename": name, "size": entry["size"], "blobId": entry["oid"]}
                if "lfs" in entry:
                    sibling["lfs"] = {
                        "sha256": entry["lfs"]["oid"],
                        "size": entry["size"],
                        "pointerSize": 134,
                    }
                siblings.append(sibling)
            self.json({"id": model, "modelId": model, "sha": repo.commit, "siblings": siblings})

    def file(self, repo: Repo, name: str) -> dict[str, Any]:
        size = len(repo.files[name])
        entry: dict[str, Any] = {"type": "file", "path": name, "size": size, "oid": repo.etag(name)}
        if repo.large(name):
            entry["oid"] = hashlib.sha1(name.encode()).hexdigest()
            entry["lfs"] = {"oid": repo.etag(name), "size": size, "pointerSize": 134}
        return entry

    def resolve(self, repo: Repo, revision: str, name: str) -> None:
        if revision not in ("main", repo.commit):
            self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif name not in repo.files:
            self.error(404, "EntryNotFound", "Entry not found")
        elif repo.large(name):
            etag = repo.etag(name)
            self.reply(
                302,
                {
                    "Location": f"{self.hub.content_url}/{etag}?X-Signature=secret",
                    "X-Repo-Commit": repo.commit,
                    "X-Linked-Etag": f'"{etag}"',
                    "X-Linked-Size": str(len(repo.files[name])),
                },
                b"",
            )
        else:
            headers = {"ETag": f'"{repo.etag(name)}"', "X-Repo-Commit": repo.commit}
            self.content(repo.files[name], headers)

    def error(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self.reply(status, headers, json.dumps({"error": message}).encode())

    def json(self, value: Any) -> None:
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


class _Content(_Base):
    """The content server: blobs by hash."""

    def answer(self, path: str) -> None:
        body = self.hub.blob(path.strip("/"))
        if body is None:
            self.reply(404, {}, b"")
        else:
            self.content(body, {"ETag": f'"{path.strip("/")}"'})
