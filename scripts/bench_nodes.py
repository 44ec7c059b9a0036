"""What several nodes lose when something happens to one: the launcher against the same plans as plain bash.

    sudo uv run python scripts/bench_nodes.py [--only NAME] [--side launcher|bash] [--lease 30] [--json FILE]

Nodes are network namespaces on one switch, etcd is real, workers are simulated: `a` has the frontend and two prefill
workers, `b` and `c` two decode workers each. Sixteen streaming clients ask all the time. `failed` counts requests that
got anything but a whole stream; `whole_s` is the time until discovery has as many decode workers as before again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.load import Load  # noqa: E402
from tests.support.nodes import Etcd, Net, cluster, etcds, missing  # noqa: E402
from tests.support.runs import get  # noqa: E402

MODEL = "openai/gpt-oss-120b"
HTTP, EVENTS = 8000, 20000
BACKEND = "v1/instances/sim/backend/generate/"
START_S = 90.0
BEFORE_S, AFTER_S = 4.0, 20.0
"""Load before something happens, and at least after it."""
WHOLE_S = 60.0
"""Longest wait for the deployment to be whole again."""


@dataclass
class Side:
    """One deployment over the nodes, started one way or the other."""

    kind: str
    net: Net
    etcd: Etcd
    folder: Path
    lease_s: int
    python: str
    sets: tuple[str, ...] = ()
    members: tuple[Etcd, ...] = ()
    """Of etcd, where it has several; `etcd` is the first."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, node: str, roles: str) -> None:
        """Start a part on a node."""
        options = ["--target", "sim", "--roles", roles, "--discovery", "etcd", "--etcd-endpoints",
                   ",".join(each.url for each in self.members or (self.etcd,)),
                   "--node", node, "--etcd-lease-s", str(self.lease_s), "--http-host", self.net.nodes[node],
                   "--http-port", str(HTTP), "--admin-port", "9000", "--python", self.python]  # fmt: skip
        for each in self.sets:
            options += ["--set", each]
        launcher = [sys.executable, "-m", "launcher"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder)}
        argv = [*launcher, *options, "--state-dir", str(self.folder / node), "--log-format", "text"]
        if self.kind == "bash":
            made = subprocess.run(
                self.net.inside(node, *launcher, "plan", *options, "--output", "bash"),
                env=env, capture_output=True, text=True, check=True, cwd=ROOT,
            )  # fmt: skip
            script = self.folder / f"{node}.sh"
            script.write_text(made.stdout)
            argv = ["bash", str(script)]
            others = [each for each in self.net.nodes if each != node and not each.startswith("store")]
            env["EVENT_PEERS"] = " ".join(f"tcp://{self.net.nodes[each]}:{EVENTS}" for each in others)
        log = (self.folder / f"{node}.log").open("ab")
        self.running[node] = subprocess.Popen(
            self.net.inside(node, *argv), env=env, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
        )

    def serve(self) -> None:
        """The usual three parts, ready."""
        for node, roles in (("a", "frontend,prefill"), ("b", "decode"), ("c", "decode")):
            self.start(node, roles)
        self.wait(4)

    @property
    def dynamo(self) -> str:
        """The release that the children run."""
        ask = "import importlib.metadata as m; print(m.version('ai-dynamo'))"
        return subprocess.run(
            [self.python, "-c", ask], capture_output=True, text=True, check=True
        ).stdout.strip()

    @property
    def url(self) -> str:
        return f"http://{self.net.nodes['a']}:{HTTP}"

    def wait(self, backends: int) -> None:
        """Until the model can be routed to and so many decode workers are there."""
        deadline = time.monotonic() + START_S
        page = f"{self.url}/v1/models/openai%2Fgpt-oss-120b/ready"
        while self.backends() != backends or '"ready":true' not in get(page)[1]:
            if time.monotonic() > deadline:
                raise SystemExit(f"not ready: {self.backends()} decode workers, {get(page)}")
            time.sleep(0.2)
        time.sleep(2)  # let the launchers prove what they prove

    def backends(self) -> int:
        """Decode workers in discovery; asked of a member that lives."""
        living = (each for each in self.members if each.alive)
        return len(next(living, self.etcd).keys(BACKEND))

    def leader(self) -> Etcd:
        """Of a quiet cluster."""
        return next(each for each in self.members if each.leads())

    def worker(self, node: str) -> int:
        """Process id of a decode worker on a node."""
        for pid in self.net.pids(node):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"dynamo.mocker" in words:
                    return pid
        raise SystemExit(f"no worker on {node}")

    def stop(self) -> None:
        """End everything: asked first, then killed by the nodes' end."""
        for process in self.running.values():
            with contextlib.suppress(OSError):
                for pid in (process.pid,):
                    os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))


def kill_worker(side: Side) -> None:
    """kill -9 of one decode worker."""
    os.kill(side.worker("b"), signal.SIGKILL)


def crash_node(side: Side) -> None:
    """kill -9 of every process of a node whose kernel lives on: its connections are reset."""
    side.net.kill("c", cut=False)


def lose_node(side: Side) -> None:
    """A node's power fails: silence on all its connections."""
    side.net.kill("c")


def cut_link(side: Side) -> None:
    """A node's cable is pulled, and put back after 20 s."""
    side.net.cut("c")
    time.sleep(20)
    side.net.mend("c")


def etcd_3s(side: Side) -> None:
    """etcd is killed and comes back after 3 s with its data."""
    side.etcd.stop()
    time.sleep(3)
    side.etcd.start()


def etcd_20s(side: Side) -> None:
    """etcd is killed and comes back after 20 s with its data: longer than the leases live."""
    side.etcd.stop()
    time.sleep(20)
    side.etcd.start()


def kill_member(side: Side) -> None:
    """kill -9 of one of three members of etcd that does not lead."""
    next(each for each in side.members if not each.leads()).stop()


def kill_leader(side: Side) -> None:
    """kill -9 of the leader of three members of etcd."""
    side.leader().stop()


def lose_leader(side: Side) -> None:
    """The machine of the leader of three members of etcd loses its power: silence on all its connections."""
    leader = side.leader()
    side.net.cut(leader.node)
    leader.stop()


def add_node(side: Side) -> None:
    """One more node with two decode workers."""
    side.start("d", "decode")


def drain_node(side: Side) -> None:
    """SIGTERM to the part on a node (to the launcher, or to the shell script)."""
    side.running["c"].send_signal(signal.SIGTERM)


SCENARIOS: tuple[tuple[Callable[[Side], None], int], ...] = (
    (kill_worker, 4), (crash_node, 2), (lose_node, 2), (cut_link, 4), (etcd_3s, 4), (etcd_20s, 4), (add_node, 6),
    (drain_node, 2), (kill_member, 4), (kill_leader, 4), (lose_leader, 4),
)  # fmt: skip
"""What happens, and how many decode workers there should be in the end."""


THREE = (kill_member, kill_leader, lose_leader)
"""What needs an etcd of three members."""


def run(side: Side, what: Callable[[Side], None], backends: int) -> dict[str, Any]:
    """One scenario on a fresh deployment."""
    side.serve()
    with Load([side.url], MODEL, concurrency=16) as load:
        time.sleep(BEFORE_S)
        at, began = load.now, time.monotonic()
        what(side)
        whole: float | None = None
        # Who lost its lease with a member of etcd is known only after it.
        after = side.lease_s + AFTER_S if what in THREE else AFTER_S
        # What has not yet left discovery is not whole: first it must have changed, or have had the time to.
        time.sleep(0.3)
        while time.monotonic() - began < WHOLE_S:
            if whole is None and side.backends() == backends:
                whole = round(time.monotonic() - began, 1)
            if whole is not None and side.backends() != backends:
                whole = None
            if whole is not None and time.monotonic() - began > max(after, whole + 6):
                break
            time.sleep(0.25)
    side.stop()
    name = what.__name__
    return {"scenario": name, "dynamo": side.dynamo, "side": side.kind, "what": (what.__doc__ or "").strip(),
            "lease_s": side.lease_s,
            "sets": list(side.sets),
            "whole_s": whole, **load.summary(at)}  # fmt: skip


@contextlib.contextmanager
def fresh(kind: str, lease_s: int, python: str, sets: tuple[str, ...], three: bool) -> Iterator[Side]:
    if three:
        with tempfile.TemporaryDirectory(prefix="bn-") as name, Net() as net:
            stores = ("store", "store2", "store3")
            for node in (*stores, "a", "b", "c"):
                net.add(node)
            with etcds(net, Path(name), *stores) as members:
                yield Side(kind, net, members[0], Path(name), lease_s, python, sets, tuple(members))
        return
    with (
        tempfile.TemporaryDirectory(prefix="bn-") as name,
        cluster(Path(name), "a", "b", "c", "d") as (net, etcd),
    ):
        yield Side(kind, net, etcd, Path(name), lease_s, python, sets)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", help="one of " + ", ".join(each.__name__ for each, _ in SCENARIOS)
    )
    parser.add_argument("--side", choices=("launcher", "bash"), action="append")
    parser.add_argument("--lease", type=int, default=30, help="time to live of registrations, seconds")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has Dynamo")
    parser.add_argument("--set", action="append", default=[], help="a value of the target, for both sides")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if reason := missing():
        raise SystemExit(reason)
    results = []
    for what, backends in SCENARIOS:
        if args.only and what.__name__ not in args.only:
            continue
        for kind in args.side or ("launcher", "bash"):
            with fresh(kind, args.lease, args.python, tuple(args.set), what in THREE) as side:
                results.append(run(side, what, backends))
            print(json.dumps(results[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
