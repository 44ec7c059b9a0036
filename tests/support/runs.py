"""Launchers that really run, for end-to-end tests: started as a user would, on ports of their own."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

START_S = 90.0
"""For a simulated deployment to become ready on a loaded machine."""
ROOT = Path(__file__).parents[2]
ADDRESSES = re.compile(r"API (\S+):(\d+), admin (\S+):(\d+)")


class Run:
    """`python -m launcher ...` as a child of the test; use it as a context manager."""

    def __init__(
        self,
        target: str,
        *options: str,
        state: Path,
        python: str = sys.executable,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        **env: str,
    ) -> None:
        """`host`: where it is reached; `prefix`: what puts it on another node."""
        self.host = host
        self.state = state
        self.lines: list[str] = []
        self.argv = [
            *prefix, python, "-m", "launcher", "--target", target, "--http-host", host, "--http-port", "0",
            "--admin-host", host, "--admin-port", "0", "--state-dir", str(state), *options,
        ]  # fmt: skip
        self.env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
        self.http_port = self.admin_port = 0
        self._addressed = threading.Event()

    def __enter__(self) -> Run:
        self.process = subprocess.Popen(
            self.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=self.env,
            cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(20)
        self._reader.join(10)

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.append(line.rstrip("\n"))
            found = ADDRESSES.search(line)
            if found and not self.admin_port:
                self.http_port, self.admin_port = int(found[2]), int(found[4])
                self._addressed.set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.http_port}"

    @functools.cached_property
    def model(self) -> str:
        """The name of the model that it serves."""
        return str(self.status()["model"])

    @property
    def log(self) -> str:
        """Everything that it printed so far."""
        return "\n".join(self.lines)

    def ready(self, timeout_s: float = START_S) -> Run:
        """Wait until the admin server says ready."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log}"
            if self._addressed.wait(0.1) and self.admin("/readyz")[0] == 200:
                return self
            time.sleep(0.1)
        raise AssertionError(f"not ready in {timeout_s:g} s: {self.admin('/readyz')[1]}\n{self.log}")

    def errors_of_the_start(self) -> list[str]:
        """The lines of level ERROR until it was ready."""
        ready = next(place for place, line in enumerate(self.lines) if " ready in " in line)
        return [line for line in self.lines[:ready] if " ERROR " in line]

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for the end; returns the exit code."""
        code = self.process.wait(timeout_s)
        self._reader.join(10)
        return code

    def stop(self) -> int:
        """SIGTERM, then the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def admin(self, path: str) -> tuple[int, str]:
        """Status and body of an admin page; status 0 where nobody answers."""
        return get(f"http://{self.host}:{self.admin_port}{path}")

    def status(self) -> dict[str, Any]:
        """The page `/status`."""
        code, body = self.admin("/status")
        assert code == 200, body
        loaded = json.loads(body)
        assert isinstance(loaded, dict)
        return loaded

    def process_state(self, name: str) -> dict[str, Any]:
        """One process of `/status`."""
        return next(state for state in self.status()["processes"] if state["name"] == name)

    def descendants(self) -> list[psutil.Process]:
        """Every process below the launcher that is alive."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def chat(self, text: str = "Hello", *, timeout_s: float = 30.0, **extra: Any) -> dict[str, Any]:
        """One chat completion; AssertionError where it is not answered with 200."""
        body_in = chat_body(text, **{"model": self.model, **extra})
        code, body = post(f"{self.url}/v1/chat/completions", body_in, timeout_s)
        assert code == 200, body
        loaded = json.loads(body)
        assert isinstance(loaded, dict)
        return loaded

    def stream(
        self, text: str = "Hello", *, timeout_s: float = 60.0, **extra: Any
    ) -> Iterator[dict[str, Any]]:
        """The chunks of a streamed chat completion; AssertionError where it ends without `[DONE]`."""
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions",
            data=json.dumps(chat_body(text, stream=True, **{"model": self.model, **extra})).encode(),
            headers={"Content-Type": "application/json"},
        )
        done = False
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            for raw in response:
                line = raw.decode().strip()
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))
        assert done, "the stream was cut"


def chat_body(text: str, **extra: Any) -> dict[str, Any]:
    return {
        "model": "openai/gpt-oss-120b",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 16,
        **extra,
    }


def get(url: str, timeout_s: float = 10.0) -> tuple[int, str]:
    """GET; status 0 and the reason where nobody answers."""
    return _open(urllib.request.Request(url), timeout_s)


def post(url: str, body: Any, timeout_s: float = 30.0) -> tuple[int, str]:
    """POST JSON; status 0 and the reason where nobody answers."""
    return _open(
        urllib.request.Request(
            url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        ),
        timeout_s,
    )


def _open(request: urllib.request.Request, timeout_s: float) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, ValueError) as error:
        return 0, str(error)
