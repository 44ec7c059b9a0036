"""The two sides of a comparison: the launcher, and the bash plan that it prints, both with simulated workers."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from launcher.plan.model import Plan
from launcher.plan.output import bash
from launcher.plan.ports import free_everywhere
from tests.chaos.strike import Side, routed
from tests.support.plans import planned
from tests.support.runs import Run

READY_S = 120.0
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Before a command: makes it PID 1 of a PID namespace of its own, as in a container. Needs root."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`2P2D`, `4P4D` or `4A`."""

    name: str

    @property
    def target(self) -> str:
        return "h200-agg" if self.name.endswith("A") else "sim"

    @property
    def sets(self) -> list[str]:
        if self.name.endswith("A"):
            return [f"workers.aggregated.count={self.name[:-1]}"]
        prefill, decode = self.name.removesuffix("D").split("P")
        return [f"workers.prefill.count={prefill}", f"workers.decode.count={decode}"]

    @property
    def roles(self) -> list[str]:
        return ["aggregated"] if self.name.endswith("A") else ["decode", "prefill"]


@contextlib.contextmanager
def launcher(shape: Shape, python: str, *more: str, prefix: Sequence[str] = ()) -> Iterator[tuple[Side, Run]]:
    """A ready deployment. `more`: further options; `prefix`: what comes before the command."""
    options = [word for change in shape.sets for word in ("--set", change)]
    state = Path(tempfile.mkdtemp(prefix="bc-"))
    with Run(
        shape.target,
        "--engine",
        "mocker",
        "--restart-budget",
        "1000",
        "--python",
        python,
        *options,
        *more,
        state=state,
        prefix=prefix,
    ) as run:
        run.ready(READY_S)
        side = Side(
            run.url,
            run.model,
            lambda name: int(run.process_state(name)["pid"]),
            lambda name: int(run.process_state(name)["ports"]["rpc"]),
        )
        yield side, run


@contextlib.contextmanager
def shell(
    shape: Shape, python: str, *, migration: bool = True, prefix: Sequence[str] = ()
) -> Iterator[tuple[Side, subprocess.Popen[bytes]]]:
    """A ready deployment of the bash plan, and the shell that runs it."""
    port = next(number for number in range(18600, 18900, 2) if free_everywhere(number))
    with planned(
        shape.target, *shape.sets, engine="mocker", http_port=str(port), http_host="127.0.0.1", base_port="28000",
        python=python,
    ) as held:  # fmt: skip
        plan = held.plan
        script = Path(tempfile.mkdtemp(prefix="bc-")) / "plan.sh"
        text = bash.render(plan)
        # The public recipe sets no limit, which means no migration; the generated plan does.
        script.write_text(text if migration else re.sub(r"--migration-limit \d+", "", text))
    process = subprocess.Popen(
        [*prefix, "bash", str(script)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        side = Side(
            f"http://127.0.0.1:{port}", plan.model, lambda name: _pid(process, plan, name),
            lambda name: plan.process(name).ports["rpc"],
        )  # fmt: skip
        until = time.monotonic() + READY_S
        while sum(routed(side).values()) < len(plan.workers):
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit("the bash plan did not become ready")
            time.sleep(0.3)
        yield side, process
    finally:
        _end(process)


def _pid(process: subprocess.Popen[bytes], plan: Plan, name: str) -> int:
    wanted = str(plan.process(name).ports["system"])
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.environ().get("DYN_SYSTEM_PORT") == wanted and "dynamo" in " ".join(child.cmdline()):
                return child.pid
    raise LookupError(name)


def _end(process: subprocess.Popen[bytes]) -> None:
    """A killed worker leaves the script waiting, so its children are ended by name of their parent."""
    with contextlib.suppress(psutil.Error):
        everything = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for each in everything:
            with contextlib.suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(everything, timeout=10)
    process.wait(10)
