"""Real MPI rank trees, spawned as TensorRT-LLM spawns them, for both kinds of Open MPI (orted, prte).

Looked for at `/opt/mpi4/bin/python` and `/opt/mpi5/bin/python`, or at `LAUNCHER_TEST_MPI4` and `_MPI5`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.supervise.conftest import eventually

pytestmark = pytest.mark.timeout(120)
RANKS = 2
START_S = 80.0
"""For the ranks to answer: Open MPI's first start on a loaded machine."""
POOL = f"""
import time
from mpi4py.futures import MPIPoolExecutor
pool = MPIPoolExecutor(max_workers={RANKS})
print(sorted(pool.map(abs, range({RANKS * 2}))), flush=True)
time.sleep(1000)
"""
EXEC = """
import os
python, program = {python!r}, {program!r}
home = os.path.dirname(python)
os.environ.update({{
    "PATH": home + ":" + os.environ["PATH"],
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}})
os.execv(python, [python, "-c", program])
"""


def interpreter(kind: str) -> str:
    path = os.environ.get(f"LAUNCHER_TEST_{kind.upper()}", f"/opt/{kind}/bin/python")
    if not Path(path).exists():
        pytest.skip(f"no {path} with mpi4py and Open MPI")
    return path


def ranks(tree: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in tree:
        try:
            if "mpi4py.futures.server" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("kind", ["mpi4", "mpi5"])
@pytest.mark.parametrize("end", ["stop", "kill-launcher", "kill-init", "kill-worker"])
def test_no_rank_survives(kind: str, end: str, tmp_path: Path) -> None:
    program = EXEC.format(python=interpreter(kind), program=POOL)
    options = {"programs": {"prefill-0": program}, "folder": str(tmp_path), "leader_s": 1.0}
    log = (tmp_path / "log").open("wb")
    driver = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "driver.py"), json.dumps(options)], stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip
    try:
        whole = psutil.Process(driver.pid)
        expected = str(list(range(RANKS * 2)))
        until = time.monotonic() + START_S
        while expected not in (tmp_path / "log").read_text() and driver.poll() is None:
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.1)
        assert driver.poll() is None, (tmp_path / "log").read_text()
        inner = int((tmp_path / "inner").read_text())
        tree = whole.children(recursive=True)
        first = ranks(tree)
        assert len(first) == RANKS
        if end == "kill-worker":
            (worker,) = [
                each for each in psutil.Process(inner).children() if each.pid in {p.pid for p in tree}
            ]
            worker.kill()
            # The old tree goes entirely, and a new one takes its place.
            assert psutil.wait_procs(first, timeout=20)[1] == []
            eventually(
                lambda: (tmp_path / "log").read_text().count(expected) == 2, "the ranks answered again"
            )
            tree = whole.children(recursive=True)
        target = inner if end == "kill-launcher" else driver.pid
        os.kill(target, signal.SIGKILL if end in ("kill-launcher", "kill-init") else signal.SIGTERM)
        driver.wait(30)
        assert psutil.wait_procs(tree, timeout=20)[1] == []
    finally:
        if driver.poll() is None:
            driver.send_signal(signal.SIGTERM)
            time.sleep(0.6)
            driver.send_signal(signal.SIGTERM)
            driver.wait(20)
        log.close()
