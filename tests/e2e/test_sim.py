"""The main job on the embedded default: real frontend, router and simulated workers, reached over the OpenAI API."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.runs import Run, get

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Run("sim", state=tmp_path_factory.mktemp("state")) as run:
        yield run.ready()


def test_a_plain_chat_completion(sim: Run) -> None:
    answer = sim.chat("Hello", max_tokens=8)
    (choice,) = answer["choices"]
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 8


def test_a_streamed_chat_completion(sim: Run) -> None:
    chunks = list(sim.stream("Hello", max_tokens=8))
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    assert len(text.split()) == 8
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_every_planned_process_runs_with_the_planned_command_line(sim: Run) -> None:
    status = sim.status()
    planned = {process["name"]: process for process in status["plan"]["processes"]}
    assert sorted(planned) == ["decode-0", "decode-1", "events", "frontend", "prefill-0", "prefill-1"]
    for state in status["processes"]:
        found = psutil.Process(state["pid"])
        assert found.cmdline() == planned[state["name"]]["argv"]
        environ = found.environ()
        for name, value in planned[state["name"]]["env"].items():
            assert environ[name] == value


def test_only_the_api_listens_beyond_loopback(sim: Run) -> None:
    assert "--http-host" in sim.argv  # The test binds the API to loopback too: then nothing may be outside.
    listening = [
        (process.pid, connection.laddr.ip, connection.laddr.port)
        for process in [psutil.Process(sim.process.pid), *sim.descendants()]
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {sim.http_port, sim.admin_port} <= {port for _, _, port in listening}
    assert (
        len(listening) >= 10
    )  # API, admin, the frontend's stream port, system and request port of four workers
    assert {address for _, address, _ in listening} <= {"127.0.0.1", "::1"}


def test_readiness_pages(sim: Run) -> None:
    for page in ("/livez", "/startupz", "/readyz"):
        assert sim.admin(page) == (200, "ok\n")
    assert sim.admin("/nothing")[0] == 404


def test_status_says_what_runs_and_that_it_is_simulated(sim: Run) -> None:
    status = sim.status()
    assert status["ready"] is True
    assert status["reasons"] == []
    assert status["simulated"] is True
    assert status["url"] == sim.url
    for process in status["processes"]:
        assert {"name", "role", "pid", "state", "restarts", "ports", "phases"} <= set(process)
        assert process["state"] == "ready"


def test_the_runs_folder_is_private(sim: Run) -> None:
    (folder,) = [path for path in sim.state.iterdir() if path.name.startswith("sim-")]
    for path in (folder, folder / "discovery"):
        assert path.stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_uid == os.getuid()


def test_kv_events_reach_the_router(sim: Run) -> None:
    text = "the same long prompt " * 60
    # Events travel beside the answers: a request that follows at once may still be routed without them.
    cached = [sim.chat(text)["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(5)]
    assert max(cached) >= 1024
    applied = [
        line
        for line in get(f"{sim.url}/metrics")[1].splitlines()
        if line.startswith("dynamo_component_kv_cache_events_applied") and 'event_type="stored"' in line
    ]
    assert sum(float(line.rpartition(" ")[2]) for line in applied) > 0


def test_it_is_a_small_process_on_uvloop(sim: Run) -> None:
    maps = Path(f"/proc/{sim.status()['pid']}/maps").read_text()
    assert "uvloop" in maps
    assert "dynamo/_core" not in maps
    assert "/torch/" not in maps
    assert psutil.Process(sim.status()["pid"]).memory_info().rss < 150 << 20


def test_logs_name_their_process(sim: Run) -> None:
    names = {line.partition("|")[0].strip() for line in sim.lines}
    assert {"launcher", "frontend", "prefill-0", "prefill-1", "decode-0", "decode-1"} <= names


def test_a_start_that_goes_well_writes_no_error(sim: Run) -> None:
    assert sim.errors_of_the_start() == []


def test_stopping_leaves_nothing(state: Path) -> None:
    with Run("sim", "--log-format", "json", state=state) as run:
        run.ready()
        children = run.descendants()
        assert len(children) >= 6
        assert run.stop() == 0
        _, alive = psutil.wait_procs(children, timeout=10)
        assert alive == []
        assert not [path for path in state.iterdir() if path.name.startswith("sim-")]
        records = [json.loads(line) for line in run.lines]
        assert {"launcher", "frontend"} <= {record["process"] for record in records}
        told = [record["message"] for record in records if record["process"] == "launcher"]
        assert re.fullmatch(r"stopped after [\d.]+ s: exit code 0, nothing was cut", told[-1])
        assert not [text for text in told if " exited" in text]
        order = [next(i for i, text in enumerate(told) if text.startswith(f"{name} dr")) for name in
                 ("frontend", "decode-0", "prefill-0")]  # fmt: skip
        assert order == sorted(order)
