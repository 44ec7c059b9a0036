"""Run every check of a target on this machine. Starts nothing; exit code 3 where a start would be refused."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from launcher.checks.output import table
from launcher.checks.report import Report
from launcher.cli import common, joining, planning
from launcher.findings import Exit, Finding, LauncherError
from launcher.machine import Machine


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    common.add_target_options(parser)
    common.add_machine_option(parser)
    joining.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print what the checks have to say; exit code 3 on errors, 2 where the target could not even be read."""
    began = time.monotonic()
    try:
        loaded = common.load(args)
        report, machine = examine(loaded)
    except LauncherError as error:
        if args.json:
            _print({"ok": False, "findings": [finding.to_json() for finding in error.findings]})
            return int(error.exit_code)
        raise
    seconds = time.monotonic() - began
    target = loaded.resolved.target
    if args.json:
        about = {"target": target.name, "engine": target.engine.kind, "machine": _facts(machine)}
        _print(about | report.to_json() | {"seconds": round(seconds, 3)})
    else:
        head = f"{target.name} ({target.engine.kind}) on {_line(machine)}"
        sys.stdout.write(table.render(report, head, seconds))
    return int(Exit.CHECK_FAILED if report.errors else Exit.OK)


def examine(loaded: common.Loaded) -> tuple[Report, Machine | None]:
    """All checks of a target on its machine; none stops the next.

    Where no plan can be made, the report says so and lacks the checks that need one.
    """
    report = Report()
    machine: Machine | None = None
    try:
        with planning.planned(
            loaded, run_name=f"{loaded.resolved.target.name}.run", report=report
        ) as planned:
            machine = planned.machine
            planning.before_start(loaded, planned)
    except LauncherError as error:
        known = {finding.what for finding in report.findings}
        unsaid = [finding for finding in error.findings if finding.what not in known]
        if any(finding.code.startswith("ignore-") for finding in unsaid):
            raise  # the command line is wrong, not the target
        report.findings += unsaid
        report.skipped["plan, machine, model"] = "nothing could be planned"
    except Exception as error:  # a fault of the launcher must not hide what was found
        report.findings.append(
            Finding(
                code="check-failed",
                what=f"planning failed itself: {type(error).__name__}: {error}",
                why="the checks of plan, machine and model did not run; this is the launcher's fault",
                fix="correct the other errors first, then report it",
            )
        )
        report.skipped["plan, machine, model"] = "nothing could be planned"
    return report, machine


def _facts(machine: Machine | None) -> dict[str, Any]:
    if machine is None:
        return {}
    return {
        "hostname": machine.hostname,
        "simulated": machine.simulated,
        "arch": machine.arch,
        "gpus": [gpu.product for gpu in machine.visible],
        "driver": machine.driver_version,
        "cpus": machine.cpus,
        "memory_bytes": machine.memory_bytes,
        "packages": dict(machine.packages),
    }


def _line(machine: Machine | None) -> str:
    if machine is None:
        return "this machine"
    products = sorted({gpu.product for gpu in machine.visible})
    gpus = f"{len(machine.visible)}x {'/'.join(products)}" if products else "no GPU"
    where = "a machine like that" if machine.simulated else machine.hostname
    installed = [
        f"{name} {machine.packages[name]}"
        for name in ("ai-dynamo", "vllm", "tensorrt-llm")
        if name in machine.packages
    ]
    return f"{where}: {gpus}, {machine.arch}, {', '.join(installed) or 'nothing installed'}"


def _print(value: dict[str, Any]) -> None:
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")
