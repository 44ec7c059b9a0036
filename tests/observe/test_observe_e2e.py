"""Metrics, incidents, status and the live view on a real simulated deployment."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.cli import main
from launcher.observe.exposition import parse
from tests.observe.support import samples, value
from tests.observe.test_dashboard import METRIC, expressions
from tests.support.runs import ROOT, Run

pytestmark = pytest.mark.e2e
SECRET = "hf_veryverysecretvalue0123456789"
WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")


def until(found: Callable[[], Any], limit_s: float = 40.0) -> Any:
    """Wait until it is true of something."""
    deadline = time.monotonic() + limit_s
    while not (result := found()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return result


def metrics(run: Run) -> str:
    code, text = run.admin("/metrics")
    assert code == 200
    samples(text)
    return text


def scraped(page: str) -> set[tuple[str, float]]:
    """Each child, and whether it gave its metrics."""
    return {
        (dict(labels)["worker"], value)
        for (name, labels), value in samples(page).items()
        if name == "launcher_scrape_up"
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A deployment that has answered some requests; its tests run in their order."""
    state = Path(f"/tmp/lt-obs-{os.getpid()}")
    try:
        with Run("sim", state=state, HF_TOKEN=SECRET) as run:
            run.ready()
            for _ in range(3):
                run.chat("Hello " * 200, max_tokens=32)
            yield run
    finally:
        shutil.rmtree(state, ignore_errors=True)


def test_every_childs_metrics_are_on_one_valid_page(served: Run) -> None:
    text = metrics(served)
    for worker in ("frontend", *WORKERS):
        role = worker.partition("-")[0]
        assert value(text, "launcher_scrape_up", worker=worker, role=role) == 1
        assert any(
            dict(labels).get("worker") == worker and not name.startswith("launcher_")
            for name, labels in samples(text)
        ), worker
    assert value(text, "launcher_ready") == 1
    assert value(text, "launcher_workers_ready", role="decode") == 2
    # The frontend's own label `worker` is that of a thread: it must not hide ours.
    assert 'exported_worker="0"' in text


def test_the_dashboard_asks_for_what_is_exported_now(served: Run) -> None:
    exported = {name for family in parse(metrics(served)).families.values() for name, _, _ in family.samples}
    asked = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert {name for name in asked if not name.startswith("launcher_gpu_")} <= exported


def test_a_stopped_child_costs_a_second_and_only_its_own_metrics(served: Run) -> None:
    pid = served.process_state("prefill-1")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(1.1)  # the page of before the stop is still fresh
        began = time.monotonic()
        text = metrics(served)
        assert time.monotonic() - began < 5.0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert value(text, "launcher_scrape_up", worker="prefill-1") == 0
    assert value(text, "launcher_scrape_up", worker="decode-1") == 1
    until(lambda: served.admin("/readyz")[0] == 200)


def test_a_killed_worker_leaves_an_incident_and_counts(served: Run) -> None:
    before = value(metrics(served), "launcher_incidents_total")
    os.kill(served.process_state("decode-0")["pid"], signal.SIGKILL)
    degraded = until(lambda: (page := served.status())["degraded"] and page)
    assert degraded["capacity"]["decode"] == {"planned": 2, "ready": 1, "min_ready": 2}
    until(lambda: main(["status", "--url", f"http://127.0.0.1:{served.admin_port}"]) == 3, 10.0)
    assert metrics(served)
    until(lambda: served.admin("/readyz")[0] == 200)
    text = until(
        lambda: (page := metrics(served)) and value(page, "launcher_incidents_total") > before and page
    )
    assert value(text, "launcher_worker_restarts_total", worker="decode-0", reason="signal") == 1
    assert value(text, "launcher_discovery_withdrawn_total") >= 1
    # A page of the last second is not fetched again: it may be from before the restart.
    until(lambda: ("decode-0", 1) in scraped(metrics(served)))
    listed = until(
        lambda: (page := served.status()["incidents"][0]) and "ready again" in page["outcome"] and page
    )
    assert listed["process"] == "decode-0"
    incident = json.loads(Path(listed["path"]).read_text())
    assert incident["exit"]["signal"] == 9
    assert incident["last_lines"]["decode-0"]
    assert incident["plan"]["hash"] == served.status()["plan"]["hash"]
    assert incident["versions"]["ai-dynamo"]
    assert [event["kind"] for event in incident["timeline"]].count("exited") >= 1


def test_status_is_complete_and_tells_no_secret(served: Run) -> None:
    until(lambda: served.admin("/readyz")[0] == 200)
    page = served.status()
    assert page["ready"] is True
    assert page["reasons"] == []
    for process in page["processes"]:
        assert {"name", "role", "pid", "state", "restarts", "ports", "phases"} <= process.keys()
    assert page["url"] == served.url
    assert page["capacity"]["prefill"]["planned"] == 2
    pages = json.dumps(page) + metrics(served) + served.log
    for path in (served.state / "incidents").iterdir():
        pages += path.read_text()
    assert SECRET not in pages
    assert main(["status", "--url", f"http://127.0.0.1:{served.admin_port}"]) == 0


def test_pages_are_cheap(served: Run) -> None:
    def seconds(path: str) -> float:
        began = time.monotonic()
        assert served.admin(path)[0] == 200
        return time.monotonic() - began

    assert min(seconds("/metrics") for _ in range(5)) < 0.2
    assert min(seconds("/status") for _ in range(5)) < 0.1


def test_incidents_outlive_the_run_and_a_failed_run_leaves_one(state: Path) -> None:
    with Run("sim", "--restart-budget", "0", state=state) as run:
        run.ready()
        os.kill(run.process_state("prefill-0")["pid"], signal.SIGSEGV)
        assert run.wait(60) == 4
    assert [path.name for path in state.iterdir()] == ["incidents"]
    (path,) = (state / "incidents").glob("*.json")
    incident = json.loads(path.read_text())
    assert incident["what"].startswith("prefill-0 was killed by SIGSEGV")
    assert incident["outcome"] == "not restarted; the run ends with exit code 4"


def test_a_run_that_is_not_ready_in_time_leaves_an_incident(state: Path, tmp_path: Path) -> None:
    options = [
        "--set",
        "simulation.args.startup-time=60",
        "--set",
        "deadlines.start_s=6",
        "--log-dir",
        str(tmp_path),
    ]
    with Run("sim", *options, state=state) as run:
        assert run.wait(60) == 4
    texts = [path.read_text() for path in (tmp_path / "incidents").glob("*.txt")]
    assert any("not ready 6 s after the start" in text or "not ready after 6 s" in text for text in texts), (
        texts
    )


# -- the live view, in a real terminal emulator


class Tmux:
    """A terminal of tmux with one command in it; nothing of it outlives the test."""

    def __init__(self, command: str, columns: int, rows: int) -> None:
        self._socket = f"launcher-test-{os.getpid()}"
        size = ("-x", str(columns), "-y", str(rows))
        # A terminal's history of before the resize stays to be looked at.
        self(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            *size,
            f"cd {ROOT}; {command}; echo ended-with $?; sleep 60",
        )

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words], capture_output=True, text=True, check=False
        )
        return done.stdout

    def seen(self) -> str:
        return self("capture-pane", "-p", "-J", "-S", "-")

    def close(self) -> None:
        self("kill-server")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_live_view_in_a_terminal(state: Path) -> None:
    serve = f"{sys.executable} -m launcher --target sim --http-port 0 --admin-port 0 --state-dir {state}"
    tmux = Tmux(serve, 110, 34)
    try:
        text = until(lambda: (seen := tmux.seen()) and re.search(r"^READY  sim", seen, re.M) and seen, 90.0)
        assert "ready in" in text  # the log's own line
        found = re.search(r"admin \S+:(\d+)", text)
        assert found is not None
        assert main(["status", "--url", f"http://127.0.0.1:{found[1]}"]) == 0
        until(lambda: "req/s" in tmux.seen())
        tmux("resize-window", "-x", "60", "-y", "20")
        time.sleep(1.5)
        tmux("resize-window", "-x", "140", "-y", "40")
        time.sleep(1.5)
        assert len(re.findall(r"^process +state", tmux.seen(), re.M)) == 1  # no frame was left behind
        mine = [
            each
            for each in psutil.process_iter(["cmdline"])
            if (each.info["cmdline"] or [])[1:3] == ["-m", "launcher"] and str(state) in each.info["cmdline"]
        ]
        launcher = min(
            mine, key=lambda each: each.create_time()
        )  # the init; the launcher proper is its child
        launcher.send_signal(signal.SIGINT)
        text = until(lambda: (seen := tmux.seen()) and "ended-with" in seen and seen, 60.0)
        assert "ended-with 0" in text
        assert not re.search(r"^process +state", text, re.M)  # the frame is gone, the log stays
        assert "stopping: SIGINT" in text
    finally:
        tmux.close()
