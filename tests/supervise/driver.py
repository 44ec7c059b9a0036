"""A small launcher to be killed in tests: `driver.py '<json>'`, see `main`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from launcher.supervise.custody import Custody
from launcher.supervise.init import run_as_init
from launcher.supervise.logs import JsonFormat


def main(custody: Custody) -> int:
    """`{"exit": n}` or `{"signal": n}` ends so; `{"hang": true}` never looks again; else runs `{"programs": {…}}`."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    folder = options.get("folder")
    if folder:
        custody.folder(folder)
        (Path(folder) / "inner").write_text(str(os.getpid()))
    if "segment" in options:
        custody.segments([options["segment"]])
    if "exit" in options:
        return int(options["exit"])
    if "signal" in options:
        os.kill(os.getpid(), options["signal"])
        signal.pause()
    return serve(options, custody)


def serve(options: dict[str, Any], custody: Custody) -> int:
    import time

    import uvloop

    from launcher.plan.model import Deadlines, Plan, Process, Role, Stop
    from launcher.supervise.hooks import Hooks
    from launcher.supervise.logpump import LogPump
    from launcher.supervise.logs import TextFormat
    from launcher.supervise.signals import install_signals
    from launcher.supervise.supervisor import Supervisor

    processes = tuple(
        Process(
            name,
            Role(name.partition("-")[0]),
            (sys.executable, "-I", "-S", "-u", "-c", program),
            {},
            stop=Stop(leader_s=float(options.get("leader_s", 60.0))),
        )
        for name, program in options["programs"].items()
    )
    deadlines = Deadlines(start_s=60.0, pause_s=0.0, drain_s={}, grace_s=60.0)
    plan = Plan("t", "e", True, "m", "", "", "", 0, "", 0, processes, deadlines)

    async def run() -> int:
        pump = LogPump(TextFormat([process.name for process in processes]))
        supervisor = Supervisor(plan, pump, hooks=Hooks(), custody=custody)
        deaf = install_signals(supervisor, lambda number: pump.log(f"user signal {number}"))
        pump.log(f"inner {os.getpid()} terminal {sys.stdout.isatty()}")
        if options.get("hang"):
            running = __import__("asyncio").create_task(supervisor.run())
            await supervisor.wait_healthy()
            pump.log("hanging")
            pump.writer.flush()
            time.sleep(1000)  # noqa: ASYNC251 - the event loop is stuck, as it may be
            await running
        try:
            return int(await supervisor.run())
        finally:
            deaf()
            pump.close()

    return int(uvloop.run(run()))


if __name__ == "__main__":
    form = JsonFormat() if json.loads(sys.argv[1]).get("json") else None
    sys.exit(run_as_init(main, form=form))
