"""Serving: a plan becomes a running deployment. The one place where planning, supervision and proof meet."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from launcher.deployment import Deployment
from launcher.findings import Exit, Finding, LauncherError, Severity
from launcher.observe.view.live import View
from launcher.plan.model import Plan, Process
from launcher.prove.ears import Ears
from launcher.supervise import strays
from launcher.supervise.custody import Custody
from launcher.supervise.logpump import LogPump
from launcher.supervise.logs import JsonFormat, TextFormat
from launcher.supervise.logwriter import LogWriter
from launcher.supervise.policy import RestartPolicy

HEAD_START_S = 3.0
"""Where processes outnumber CPUs, all at once would make the first answer wait for the last worker's imports."""


def prepare(plan: Plan, custody: Custody) -> None:
    """Make the run's private folder with what must be there before any process starts."""
    run_dir = Path(plan.run_dir)
    run_dir.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    custody.folder(run_dir)
    run_dir.mkdir(mode=0o700)
    Path(plan.discovery_dir).mkdir(mode=0o700)


def serve(
    plan: Plan,
    respawn: Callable[[Process, int], Process],
    custody: Custody,
    *,
    json_logs: bool,
    log_dir: Path | None,
    findings: tuple[Finding, ...],
    policy: RestartPolicy | None = None,
    live: bool = False,
    cpus: int | None = None,
) -> int:
    """Run the plan until it is asked to stop or fails for good; returns the exit code.

    `live`: standard output is a terminal, and the live view stands below the log. `cpus`: of this machine.
    """
    import uvloop

    prepare(plan, custody)
    names = [process.name for process in plan.processes]
    form = (
        JsonFormat()
        if json_logs
        else TextFormat(names, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    )
    view = View() if live else None
    writer = LogWriter(view.screen.pipe) if view is not None else None
    ears = Ears()
    pump = LogPump(form, writer, log_dir=log_dir, overhear=ears.hear)
    try:
        simulated = ", simulated" if plan.simulated else ""
        pump.log(
            f"{plan.target}: {plan.model} on {plan.engine}{simulated}, {len(names)} processes, "
            f"plan {plan.hash()}, API {plan.http_host}:{plan.http_port}, admin {plan.admin_host}:{plan.admin_port}"
        )
        for note in plan.notes:
            pump.log(note)
        for finding in findings:
            pump.log(finding.line(), "warning" if finding.severity is Severity.WARNING else "info")

        head_start_s = HEAD_START_S if cpus is not None and cpus < len(names) else 0.0
        if head_start_s:
            pump.log(
                f"{cpus} CPUs for {len(names)} processes: one worker of each role starts first, "
                f"the others when it is ready, {head_start_s:g} s later at most"
            )

        async def main() -> int:
            deployment = Deployment(
                plan, pump, respawn, custody, findings, policy, log_dir, view, ears, head_start_s
            )
            code = await deployment.run()
            pump.log(*deployment.closing(code))
            return code

        with strays.caught(pump):
            code: int = uvloop.run(main())
        return code
    except LauncherError:
        raise  # A finding: the command line says it in the log's form.
    except Exception as error:
        # A fault of ours must not end as a traceback among JSON lines.
        pump.log(f"the launcher itself failed: {strays.describe(error)}", "critical")
        return int(Exit.PROCESS_FAILED)
    finally:
        with contextlib.suppress(OSError):
            pump.close()
        if view is not None:
            view.close()
