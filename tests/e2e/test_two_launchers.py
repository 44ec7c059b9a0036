"""Two launchers on one machine do not clash, and a port that others know is never moved in silence."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.runs import Run

pytestmark = pytest.mark.e2e


def test_two_launchers_beside_each_other(state: Path) -> None:
    with Run("sim", state=state / "a") as first, Run("sim", state=state / "b") as second:
        first.ready()
        second.ready()
        sets = [
            {port for process in run.status()["processes"] for port in process["ports"].values()}
            for run in (first, second)
        ]
        assert sets[0].isdisjoint(sets[1])
        # Each frontend sees its own workers only: four, not eight.
        for run in (first, second):
            assert run.chat("Hello")["usage"]["completion_tokens"] == 16
        assert first.stop() == 0
        assert second.chat("Hello")["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("option", ["--http-port", "--admin-port"])
def test_a_taken_public_port_is_an_error_that_names_the_holder(state: Path, option: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        with Run("sim", option, str(port), state=state) as run:
            assert run.wait() == 3
            assert f"port {port}" in run.log
            assert "held by pid" in run.log
            assert option in run.log
        assert not state.exists() or not list(state.iterdir())
