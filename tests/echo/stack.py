"""A real Dynamo frontend and echo workers on free ports of this machine, for the tests that need them."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from launcher.simmodel import HUB_CACHE

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = Path(os.environ.get("TIKTOKEN_ENCODINGS_BASE", ROOT.parent / "shared" / "harmony"))


def python() -> str | None:
    """Return an interpreter with Dynamo: LAUNCHER_TEST_PYTHON, this one, or none."""
    given = os.environ.get("LAUNCHER_TEST_PYTHON")
    return given or (sys.executable if importlib.util.find_spec("dynamo") else None)


def free_port() -> int:
    """Return a free port that Dynamo's system server takes (it wants a signed 16-bit number)."""
    for port in range(20000 + os.getpid() % 5000, 32767):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
    raise RuntimeError("no free port below 32767")


_given: set[int] = set()


class Stack:
    """Processes that discover each other through one folder; stopped by ``stop``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.system_ports: dict[str, int] = {}
        self.start(
            "frontend",
            "dynamo.frontend",
            "--http-host=127.0.0.1",
            f"--http-port={self.port}",
            "--router-mode=kv",
        )

    def start(self, name: str, module: str, *argv: str) -> None:
        """Start a process; its output goes to NAME.log."""
        keep = {
            k: x
            for k, x in os.environ.items()
            if not k.startswith(("DYN_", "HF_")) and not k.lower().endswith("_proxy")
        }
        environment = {
            **keep,
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_FILE_KV": str(self.folder / "discovery"),
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_NAMESPACE": "echo-test",
            "DYN_SYSTEM_HOST": "127.0.0.1",
            "DYN_TCP_RPC_HOST": "127.0.0.1",
            "DYN_TCP_RESPONSE_STREAM_HOST": "lo",
            "DYN_EVENT_PLANE_HOST": "127.0.0.1",
            "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
            # Lets 1.3 frontends serve names that are not in the packaged cache.
            "DYN_SELF_HOST_METADATA": "1",
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5",
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "HF_HUB_CACHE": str(HUB_CACHE),
            "HF_HUB_OFFLINE": "1",
            "TIKTOKEN_ENCODINGS_BASE": str(VOCABULARY),
            "PYTHONPATH": str(ROOT),
        }
        if name != "frontend":
            self.system_ports[name] = free_port()
            environment["DYN_SYSTEM_PORT"] = str(self.system_ports[name])
        command = [cast(str, python()), "-m", module, *argv]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def worker(self, name: str, *argv: str) -> None:
        """Start an echo worker."""
        self.start(name, "launcher.engines.echo_worker", "--block-size=16", *argv)

    def log(self, name: str) -> str:
        """Return what a process wrote so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        """Ask every process to stop, then make it."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 15
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def get(self, path: str, port: int | None = None) -> tuple[int, str]:
        """Return status and body of a GET; status 0 where nothing listens."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and body of a POST."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
            return response.status, json.loads(text) if text else {}
        finally:
            connection.close()

    def chat(self, content: str = "hello", **more: Any) -> dict[str, Any]:
        """Return the answer to one user message; it must succeed."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], **more}
        status, answer = self.post("/v1/chat/completions", body)
        assert status == 200, answer
        return answer

    def stream(self, content: str = "hello", **more: Any) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a streamed answer; closing the iterator drops the connection."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": True, **more}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"}
            )
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def wait_for_model(self, name: str, seconds: float = 60) -> None:
        """Return once a completion of the model succeeds: a model is listed before it can be routed to."""
        body = {"model": name, "messages": [{"role": "user", "content": "ready?"}], "max_tokens": 1}
        wait(
            lambda: self.try_post(body) == 200,
            seconds,
            f"{name} never answered: {self.log('frontend')[-2000:]}",
        )

    def try_post(self, body: dict[str, Any]) -> int:
        """Return the status of a chat completion, 0 where nothing answers."""
        try:
            return self.post("/v1/chat/completions", body)[0]
        except (OSError, ValueError):
            return 0

    def metric(self, name: str, *labels: str) -> float:
        """Return the sum of a frontend metric's series that carry all labels (``key="value"``)."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith((name + "{", name + " ")) and all(label in line for label in labels)
        )


MODEL = "openai/gpt-oss-120b"


def wait(condition: Any, seconds: float, otherwise: str) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(otherwise)
        time.sleep(0.1)
