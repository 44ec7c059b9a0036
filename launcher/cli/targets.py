"""List the targets: what each serves, on what, and whether it fits this machine."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict, dataclass, field

from launcher.checks import machine as machine_checks
from launcher.checks import target as target_rules
from launcher.checks.base import run_checks
from launcher.checks.versions import INSTALLED
from launcher.cli import common, planning
from launcher.findings import Exit, LauncherError, Severity
from launcher.machine import Machine
from launcher.plan import gpus
from launcher.plan.output.table import columns
from launcher.settings import load as load_settings
from launcher.target import catalog
from launcher.target.resolve import resolve

HARDWARE = tuple(
    check
    for check in machine_checks.CHECKS
    if check.run.__module__.endswith((".gpus", ".compute", ".memory"))
)
"""Checks of what a machine is, as opposed to what is going on there at the moment."""


@dataclass(slots=True)
class Row:
    """One target."""

    name: str
    title: str = ""
    engine: str = ""
    gpus: int | None = None
    """None where the target cannot be read."""
    gpu: list[str] = field(default_factory=list)
    arch: str | None = None
    model: str = ""
    dynamo: str = ""
    fits: bool = False
    why_not: list[str] = field(default_factory=list)
    """What stands against it here, the GPUs first; empty where it fits."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    common.add_machine_option(parser)
    parser.add_argument(
        "--config-dir", metavar="DIR", default=argparse.SUPPRESS, help="a folder with targets/"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the table; a target that cannot be read is one of its rows."""
    given = {name: value for name, value in vars(args).items() if name in ("machine", "config_dir")}
    settings, _ = load_settings(given)
    machine = common.machine_for(settings)
    rows = [describe(name, machine, settings) for name in catalog.names(settings.config_dir)]
    if args.json:
        json.dump({"targets": [asdict(row) for row in rows]}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return Exit.OK
    cells = [
        (row.name, _gpus(row), row.engine or "-", "fits" if row.fits else "no", _what(row)) for row in rows
    ]
    lines = columns(("target", "GPUs", "engine", "here", "what"), cells)
    for row in rows:
        if row.why_not:
            rest = len(row.why_not) - 1
            more = f" (and {rest} more: launcher doctor --target {row.name})" if rest else ""
            lines.append(f"  {row.name}: {row.why_not[0].removeprefix(row.name + ' ')}{more}")
    lines.insert(len(rows) + 1, "")
    if not any(row.fits and row.gpus for row in rows):
        lines += ["", "any of them runs here with --engine mocker, without a model and without GPUs"]
    sys.stdout.write("\n".join(lines) + "\n")
    return Exit.OK


def _what(row: Row) -> str:
    """The title without the GPUs, which have a column of their own."""
    return re.sub(r"^\d+x [^,()]*, ", "", row.title) if row.gpus else row.title or "-"


def _gpus(row: Row) -> str:
    if row.gpus is None:
        return "-"
    return f"{row.gpus}x {'/'.join(row.gpu)}" if row.gpus else "none"


def describe(name: str, machine: Machine, settings: object) -> Row:
    """A target and what stands against it on this machine."""
    from launcher.plan.build import Planner, Request
    from launcher.plan.ports import NoPorts, PortTable

    row = Row(name)
    try:
        resolved = resolve(name, (), getattr(settings, "config_dir", None))
    except LauncherError as error:
        row.why_not = [finding.what for finding in error.findings]
        return row
    target = resolved.target
    row.title, row.engine, row.model = target.title, target.engine.kind, target.model.id
    row.gpu, row.arch, row.dynamo = list(target.hardware.gpu), target.hardware.arch, target.validated.dynamo
    findings = list(target_rules.check(resolved))
    simulated = target.engine.kind in ("mocker", "echo")
    row.gpus = 0 if simulated else gpus.needed(target)
    try:
        table = PortTable(target.network.base_port)
    except NoPorts as error:
        row.why_not = [str(error)]
        return row
    try:
        request = Request(
            run_dir="/run/launcher",
            cache_dir="/tmp",
            python=sys.executable,
            dynamo=planning.DEFAULT_DYNAMO,
            native=target.engine.kind,
            json_logs=False,
            http_port=target.network.http_port,
            admin_port=target.network.admin_port,
            inherited={},
        )
        plan = Planner(target, machine, request, table).plan()
    except LauncherError as error:
        findings += error.findings
    else:
        findings += run_checks(INSTALLED, resolved, plan, machine)
        findings += machine_checks.check(target, plan, machine, HARDWARE)
    finally:
        table.close()
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    # What is missing most comes first: packages can be installed, GPUs cannot.
    errors.sort(key=lambda finding: not finding.code.startswith("gpu-"))
    row.why_not = [finding.what for finding in errors]
    row.fits = not row.why_not
    return row
