"""The bash form runs the same deployment: same command lines, same environments, and it answers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from launcher.machine.sockets import listener
from launcher.plan.output import bash
from launcher.plan.ports import free_everywhere
from tests.support.plans import planned
from tests.support.runs import Run, get

pytestmark = pytest.mark.e2e
RUN_FOLDER = re.compile(r"/[^\s=]*?/sim[.-][^/\s]+(?=/(?:ev\.|discovery))")
KEPT = ("DYN_", "HF_", "TIKTOKEN", "PYTHONUNBUFFERED", "CUDA", "VLLM", "UCX", "NCCL")


def facts(processes: list[psutil.Process]) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Role and port of each Dynamo process to its command line and environment, run folders made equal."""
    found = {}
    for process in processes:
        try:
            argv, environ = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        if "dynamo." not in " ".join(argv[:3]) and not any(word.endswith("event_broker.py") for word in argv):
            continue
        env = {name: RUN_FOLDER.sub("RUN", value) for name, value in environ.items() if name.startswith(KEPT)}
        argv = [RUN_FOLDER.sub("RUN", word) for word in argv]
        found[" ".join(argv[2:3]) + environ.get("DYN_SYSTEM_PORT", "")] = (argv, env)
    return found


@pytest.fixture
def script(tmp_path: Path) -> tuple[Path, int]:
    port = next(number for number in range(19500, 19900, 2) if free_everywhere(number))
    with planned("sim", http_port=str(port), http_host="127.0.0.1", base_port="27000") as held:
        path = tmp_path / "sim.sh"
        path.write_text(bash.render(held.plan))
    return path, port


def test_the_script_runs_what_the_launcher_runs(
    script: tuple[Path, int], tmp_path: Path, state: Path
) -> None:
    path, port = script
    environ = {**os.environ, "TMPDIR": str(state), "SLURM_JOB_ID": "7", "DYN_ROUTER_MODE": "random"}
    shell = subprocess.Popen(["bash", str(path)], env=environ, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        ready = f"http://127.0.0.1:{port}/v1/models/openai%2Fgpt-oss-120b/ready"
        while get(ready)[0] != 200 or '"ready":true' not in get(ready)[1]:
            assert time.monotonic() < deadline
            assert shell.poll() is None
            time.sleep(0.2)
        by_hand = facts(psutil.Process(shell.pid).children(recursive=True))
    finally:
        shell.send_signal(signal.SIGTERM)
        shell.wait(30)
    assert not list(state.glob("sim.*/"))
    assert listener(port) is None
    options = ["--http-port", str(port), "--admin-port", str(port + 1), "--base-port", "27000"]
    with Run("sim", *options, state=state, SLURM_JOB_ID="7", DYN_ROUTER_MODE="random") as run:
        run.ready()
        launched = facts(run.descendants())
    assert len(by_hand) == 6
    assert by_hand == launched
