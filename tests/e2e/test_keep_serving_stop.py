"""Stopping under load, as PID 1 of a PID namespace and as an ordinary process: no stream is cut, nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.runs import Run, chat_body, post

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
PAUSE_S = 3
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


class Stream(threading.Thread):
    """One long streamed completion in the background."""

    def __init__(self, run: Run, tokens: int) -> None:
        super().__init__(daemon=True)
        self._run, self._tokens = run, tokens
        self.chunks: list[dict[str, Any]] = []
        self.error = ""
        self.ended = 0.0

    def run(self) -> None:
        try:
            for chunk in self._run.stream(max_tokens=self._tokens, timeout_s=120):
                self.chunks.append(chunk)
        except (AssertionError, OSError, ValueError) as error:
            self.error = f"{type(error).__name__}: {error}"
        self.ended = time.monotonic()

    def begun(self) -> Stream:
        self.start()
        until = time.monotonic() + 30
        while len(self.chunks) < 5:
            assert time.monotonic() < until, self.error
            time.sleep(0.05)
        return self


@pytest.fixture(params=["ordinary", "pid-1"])
def launcher(request: pytest.FixtureRequest, state: Path) -> Run:
    run = Run("sim", "--set", f"deadlines.pause_s={PAUSE_S}", "--set", "deadlines.grace_s=90", state=state)
    if request.param == "pid-1":
        if shutil.which("unshare") is None or os.geteuid() != 0:
            pytest.skip("needs root and unshare")
        run.argv = [*NAMESPACE, *run.argv]
    return run


def outer(run: Run) -> int:
    """The pid of the launcher's init, which a container's runtime would signal."""
    if run.argv[0] != "unshare":
        return run.process.pid
    (child,) = psutil.Process(run.process.pid).children()
    return int(child.pid)


def test_a_long_stream_ends_whole_and_new_requests_are_refused_after_the_pause(launcher: Run) -> None:
    with launcher as run:
        run.ready()
        everything = run.descendants()
        body = chat_body("Hello", model=run.model)
        stream = Stream(run, 2000).begun()
        at = time.monotonic()
        os.kill(outer(run), signal.SIGTERM)
        time.sleep(0.5)
        assert run.admin("/readyz") == (503, "draining\n")
        assert run.admin("/livez")[0] == 200
        while time.monotonic() < at + PAUSE_S - 1:
            assert post(f"{run.url}/v1/chat/completions", body)[0] == 200
            time.sleep(0.3)
        time.sleep(max(0.0, at + PAUSE_S + 1.5 - time.monotonic()))
        assert post(f"{run.url}/v1/chat/completions", body)[0] in (0, 503)
        assert stream.is_alive(), "too short a stream to prove anything"
        stream.join(90)
        assert stream.error == ""
        assert stream.chunks[-1]["choices"][0]["finish_reason"] == "length"
        assert stream.ended - at > PAUSE_S + 2
        assert run.wait() == 0
        assert psutil.wait_procs(everything, timeout=10)[1] == []
        assert not list(run.state.glob("sim-*"))


def test_what_does_not_end_in_time_is_killed_within_the_grace_period(state: Path) -> None:
    with Run("sim", "--set", "deadlines.grace_s=24", state=state) as run:
        run.ready()
        everything = run.descendants()
        stream = Stream(run, 20000).begun()
        at = time.monotonic()
        assert run.stop() == 5
        assert time.monotonic() - at < 24
        stream.join(20)
        assert stream.error
        assert psutil.wait_procs(everything, timeout=10)[1] == []


def test_nothing_survives_the_launchers_own_kill(state: Path) -> None:
    with Run("sim", state=state) as run:
        run.ready()
        everything = run.descendants()
        stream = Stream(run, 5000).begun()
        os.kill(int(run.status()["pid"]), signal.SIGKILL)
        assert run.wait() == 128 + signal.SIGKILL
        assert psutil.wait_procs(everything, timeout=10)[1] == []
        stream.join(20)
        assert stream.error
        assert not list(state.glob("sim-*"))
