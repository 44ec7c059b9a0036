"""What goes wrong on purpose, under load: a worker's parent, its engine's process or the launcher itself is killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import threading
import time
from typing import Any

import psutil

from tests.gpu import watch
from tests.gpu.load import Generator, Load, Shape
from tests.gpu.session import Deployment, Session
from tests.gpu.watch import MemoryWatch

BEFORE_S, AFTER_S = 3.0, 4.0
"""Of load around a fault."""
GONE_S = 90.0
"""Until a hung worker is found (`canary`) and ended."""
BACK_MIB = 600
"""A GPU process's context keeps some memory for a moment; less than this off counts as given back."""


class Background:
    """Load in a thread, until it is told to end."""

    def __init__(self, deployment: Deployment, shape: Shape, most_s: float) -> None:
        self.load: Load | None = None
        self._url, self._model = deployment.url, deployment.model
        self._shape, self._most_s = shape, most_s
        self._loop = asyncio.new_event_loop()
        self._generator: Generator | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        async def main() -> None:
            self._generator = Generator(self._url, self._model, self._shape, seed=os.getpid(), timeout_s=60.0)
            self.load = self._generator.load
            await self._generator.run(self._most_s, grace_s=15.0)

        self._loop.run_until_complete(main())

    def end(self) -> Load:
        """No more requests; wait for those under way."""
        if self._generator is not None:
            self._loop.call_soon_threadsafe(self._generator.stop.set)
        self._thread.join(25.0)
        assert self.load is not None
        return self.load


def transfers(deployment: Deployment) -> dict[str, Any]:
    """Whether KV moves now: three prompts that nobody has seen, and what decode's NIXL counters grew by."""
    decoders = [each["name"] for each in deployment.status().get("processes", ()) if each["role"] == "decode"]
    names = ("vllm:nixl_bytes_transferred_sum", "vllm:nixl_xfer_time_seconds_sum")

    def read() -> list[float]:
        return [sum(deployment.metric(name, each) or 0.0 for each in decoders) for name in names]

    before = read()
    codes = [deployment.complete(1500)[0] for _ in range(3)]
    moved = [0.0, 0.0]
    for _ in range(25):
        moved = [after - base for after, base in zip(read(), before, strict=True)]
        if moved[0] > 0 or deployment.session.dry:
            break
        time.sleep(0.2)
    return {
        "codes": codes,
        "bytes": moved[0],
        "gb_s": round(moved[0] / moved[1] / 1e9, 3) if moved[1] else None,
    }


def strike_worker(
    session: Session,
    deployment: Deployment,
    memory: MemoryWatch,
    name: str,
    what: str,
    shape: Shape,
    back_s: float,
    number: signal.Signals = signal.SIGKILL,
) -> dict[str, Any]:
    """A signal to `name`'s parent or core under load; everything that followed, until it serves again.

    SIGUSR2 makes a process hang (`plugin/gpt_oss_dummy.py`).
    """
    before = deployment.worker(name)
    leader = int(before["pid"])
    core = watch.engine_core(leader)
    victim = leader if what == "parent" or core is None else core.pid
    members = watch.tree(leader)
    load = Background(deployment, shape, back_s + BEFORE_S + AFTER_S + 20)
    time.sleep(BEFORE_S)
    used = memory.at(time.time())
    at, at_wall = time.monotonic(), time.time()
    os.kill(victim, number)
    report: dict[str, Any] = {
        "worker": name,
        "signal": number.name,
        "killed": what if core is not None or what == "parent" else "parent (it has no core)",
        "pid": victim,
    }

    def gone() -> bool:
        return not watch.alive(members)

    def again() -> bool:
        now = deployment.worker(name)
        return bool(now.get("healthy") and now.get("incarnation", 0) > before.get("incarnation", 0))

    report["tree_gone_s"] = _since(at, deployment.wait_for(gone, GONE_S, 0.05))
    report["healthy_again_s"] = _since(at, deployment.wait_for(again, back_s, 0.2))
    ready = deployment.wait_for(lambda: deployment.status().get("ready"), 30.0)
    report["ready_again_s"] = _since(at, ready)
    time.sleep(AFTER_S)
    result = load.end()
    fault = at_wall - result.began_wall
    report |= _failures(result, fault)
    now = deployment.worker(name)
    started = [
        each["time"]
        for each in deployment.events(name)
        if each["kind"] == "started" and each["time"] > at_wall
    ]
    if started:
        report["restarted_s"] = round(started[0] - at_wall, 2)
        lowest, when = memory.lowest(at_wall, started[0])
        report |= {
            "gpu_mib_before": used,
            "gpu_mib_lowest": lowest,
            "gpu_mib_at_restart": memory.at(started[0]),
            "gpu_low_after_s": round(when - at_wall, 2) if when else None,
        }
    report["said"] = [
        f"{each['time'] - at_wall:.2f} s {each['kind']}: {each.get('detail', '')}"
        for each in deployment.events(name)
        if each["time"] > at_wall
    ][:12]
    report["ports_before"], report["ports_after"] = before.get("ports"), now.get("ports")
    report["phases"] = now.get("phases")
    if any(each["role"] == "decode" for each in deployment.status().get("processes", ())):
        report["exchange"] = transfers(deployment)
    return report


def _since(at: float, happened: Any) -> float | None:
    return round(time.monotonic() - at, 2) if happened else None


def _failures(load: Load, fault_s: float) -> dict[str, Any]:
    """Which requests failed, and for how long nothing was answered."""
    bad = [reply for reply in load.bad if reply.ended >= fault_s]
    good = sorted(reply.ended for reply in load.good)
    before = [end for end in good if end <= fault_s]
    after = [before[-1] if before else fault_s, *(end for end in good if end > fault_s)]
    gaps = [(later - sooner, later) for sooner, later in itertools.pairwise(after)]
    outage, over = max(gaps, default=(None, None))
    kinds: dict[str, int] = {}
    for reply in bad:
        kinds[reply.error[:90]] = kinds.get(reply.error[:90], 0) + 1
    under_way = [reply for reply in load.replies if reply.began < fault_s < reply.ended]
    return {
        "requests": len(load.replies),
        "failed": len(bad),
        "failed_before": len(load.bad) - len(bad),
        "under_way": len(under_way),
        "under_way_failed": sum(bool(reply.error) for reply in under_way),
        "last_failure_s": round(max((reply.ended for reply in bad), default=fault_s) - fault_s, 2),
        "silence_s": round(outage, 2) if outage is not None else None,
        "answers_again_s": round(over - fault_s, 2) if over is not None else None,
        "errors": dict(sorted(kinds.items(), key=lambda item: -item[1])[:5]),
    }


HEAD = (
    "worker", "struck", "tree gone", "GPU MiB before/low/at restart", "restarted", "healthy", "no answer for",
    "failed/all", "under way failed", "KV again",
)  # fmt: skip


def row(report: dict[str, Any]) -> list[Any]:
    """One fault as a line of the table."""
    memory = "/".join(str(report.get(f"gpu_mib_{key}")) for key in ("before", "lowest", "at_restart"))
    exchange = report.get("exchange") or {}
    moved = f"{exchange.get('bytes', 0) / 1e6:.1f} MB" if exchange else ""
    return [
        report["worker"],
        f"{report['killed']} {report['signal']}",
        report.get("tree_gone_s"),
        memory,
        report.get("restarted_s"),
        report.get("healthy_again_s"),
        report.get("silence_s"),
        f"{report.get('failed')}/{report.get('requests')}",
        f"{report.get('under_way_failed')}/{report.get('under_way')}",
        moved,
    ]


def drain(deployment: Deployment, *, streams: int = 2, output: int = 600) -> dict[str, Any]:
    """SIGTERM to the launcher while streams run: are they whole, what is the exit code, is anything left?"""
    members = watch.tree(deployment.process.pid)
    load = Background(deployment, Shape(own=64, output=output, concurrency=streams), 0.5)
    time.sleep(1.0)
    at = time.monotonic()
    deployment.process.send_signal(signal.SIGTERM)
    result = load.end()
    code: int | None = None
    with contextlib.suppress(Exception):
        code = deployment.process.wait(max(5.0, min(130.0, deployment.session.left - 15)))
    took = round(time.monotonic() - at, 2)
    time.sleep(1.0)
    return {
        "exit": code,
        "seconds": took,
        "streams": [{"tokens": reply.tokens, "error": reply.error} for reply in result.replies],
        "left": watch.alive(members),
        "gpu_mib": watch.gpu_used_mib(),
    }


def kill_launcher(deployment: Deployment, *, inner: bool) -> dict[str, Any]:
    """SIGKILL to the launcher, its outer or its inner process: when is nothing left of the tree?"""
    members = watch.tree(deployment.process.pid)
    victim = int(deployment.status().get("pid") or 0) if inner else deployment.process.pid
    before = watch.gpu_used_mib()
    at = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    gone = deployment.wait_for(lambda: not watch.alive(members), 20.0, 0.05)
    took = _since(at, gone)
    least = watch.gpu_used_mib()
    for _ in range(50):
        least = watch.gpu_used_mib()
        if all(used < BACK_MIB for used in least.values()):
            break
        time.sleep(0.1)
    return {
        "killed": "inner" if inner else "outer",
        "processes": len(members),
        "gone_s": took,
        "left": watch.alive(members),
        "gpu_mib_before": before,
        "gpu_mib_after": least,
        "gpu_free_s": round(time.monotonic() - at, 2),
    }


def listening(deployment: Deployment) -> dict[str, Any]:
    """Who listens where: everything on loopback but the API."""
    pids = [process.pid for process in watch.tree(deployment.process.pid)]
    found = watch.sockets(pids)
    outside = [each for each in found if not each["loopback"] and each["port"] != deployment.http_port]
    with contextlib.suppress(psutil.Error):
        names = {pid: psutil.Process(pid).name() for pid in {each["pid"] for each in found}}
        return {"sockets": len(found), "outside": outside, "processes": sorted(set(names.values()))}
    return {"sockets": len(found), "outside": outside}
