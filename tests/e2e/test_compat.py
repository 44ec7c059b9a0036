"""The same launcher over real processes of the other Dynamo releases, by `--python`."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.plan.test_real_parsers import interpreter
from tests.support.runs import Run, get

pytestmark = [pytest.mark.e2e, pytest.mark.compat, pytest.mark.timeout(240)]


@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
@pytest.mark.parametrize("target", ["sim", "h200-1gpu-agg", "gb200-trtllm-agg"])
def test_a_target_serves(release: str, target: str, state: Path) -> None:
    with Run(target, "--engine", "mocker", "--python", interpreter(release), state=state) as run:
        run.ready(180)
        assert run.errors_of_the_start() == []
        assert run.chat("Hello")["usage"]["completion_tokens"] == 16
        assert list(run.stream("Hello"))[-1]["choices"][0]["finish_reason"] == "length"
        text = "the same long prompt " * 60
        for _ in range(5):
            run.chat(text)
        if target != "gb200-trtllm-agg":
            applied = [
                float(line.rpartition(" ")[2])
                for line in get(f"{run.url}/metrics")[1].splitlines()
                if line.startswith("dynamo_component_kv_cache_events_applied")
                and 'event_type="stored"' in line
            ]
            assert sum(applied) > 0
        outside = {
            (connection.laddr.ip, connection.laddr.port)
            for process in [psutil.Process(run.process.pid), *run.descendants()]
            for connection in process.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.ip not in ("127.0.0.1", "::1")
        }
        assert outside == set()
        assert run.stop() == 0


@pytest.mark.parametrize("release", ["1.3.1", "1.4.2"])
def test_a_served_name_of_ones_own(release: str, state: Path) -> None:
    options = ["--engine", "mocker", "--python", interpreter(release), "--set", "model.served_name=my/name"]
    with Run("h200-1gpu-agg", *options, state=state) as run:
        run.ready(180)
        assert run.chat("Hello", model="my/name")["model"] == "my/name"
