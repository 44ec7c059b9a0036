"""Start a target's deployment and keep it serving until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import os
import sys
import time

from launcher.cli import common, joining, planning
from launcher.cli import plan as plan_command
from launcher.findings import Finding, LauncherError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    common.add_target_options(parser)
    common.add_machine_option(parser)
    joining.add_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the plan and start nothing")
    plan_command.add_output_option(parser)


def run(args: argparse.Namespace) -> int:
    """Serve; returns the exit code of the run."""
    if args.dry_run:
        return plan_command.run(args)
    try:
        return _serve(args)
    except LauncherError as error:
        if not _json_asked(args):
            raise
        for finding in error.findings:
            _say_json(finding.severity.value, finding.line())
        return int(error.exit_code)
    except Exception as error:  # a fault of ours, before the log is there or after it
        if not _json_asked(args) or isinstance(error, BrokenPipeError):
            raise
        from launcher.supervise.strays import describe

        _say_json("critical", f"the launcher itself failed: {describe(error)}")
        return 1


def _json_asked(args: argparse.Namespace) -> bool:
    return common.json_log(getattr(args, "log_format", None) or os.environ.get("LAUNCHER_LOG_FORMAT", "auto"))


def _say_json(level: str, text: str) -> None:
    """Who reads a log of JSON lines shall not find a refusal among what it cannot read."""
    from launcher.supervise.logs import JsonFormat

    print(JsonFormat().own(level, text, time.time()), end="", file=sys.stderr)


def _serve(args: argparse.Namespace) -> int:
    if args.output is not None:
        raise LauncherError(
            Finding(
                code="command-line",
                what="--output is the form of a plan, and serving prints none",
                where="--output",
                fix=f"add --dry-run, or launcher plan --output {args.output}; "
                "for a log of JSON lines --log-format json",
            )
        )
    loaded = common.load(args)
    if loaded.settings.machine is not None:
        raise LauncherError(
            Finding(
                code="machine-not-here",
                what="--machine plans for another machine; nothing can be started there",
                where=loaded.given.get("machine", "--machine"),
                fix="add --dry-run, or leave it out",
            )
        )
    live, view_findings = common.wants_view(loaded.settings)
    with planning.planned(loaded) as planned:
        planning.check_start(loaded, planned)
        # From here on there is a child; nothing heavy is imported before, because the parent keeps its memory.
        from launcher.supervise.init import run_as_init
        from launcher.supervise.logs import JsonFormat

        as_json = common.wants_json(loaded.settings)

        def inner(custody: object) -> int:
            from launcher.serve import serve
            from launcher.supervise.custody import Custody
            from launcher.supervise.policy import RestartPolicy

            assert isinstance(custody, Custody)
            return serve(
                planned.plan,
                planned.planner.respawn,
                custody,
                json_logs=as_json,
                log_dir=loaded.settings.log_dir,
                findings=(*planned.findings, *view_findings),
                live=live,
                cpus=planned.machine.cpus,
                policy=RestartPolicy(
                    enabled=loaded.settings.restart_budget > 0, budget=loaded.settings.restart_budget
                ),
            )

        return run_as_init(inner, form=JsonFormat() if as_json else None)
