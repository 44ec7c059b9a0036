"""From a target that has been read to its plan, and what the checks say of it."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher import settings as settings_module
from launcher.checks.base import run_checks
from launcher.checks.versions import releases
from launcher.cli import joining
from launcher.cli.common import Loaded, machine_for, wants_json
from launcher.engines import events, vllm
from launcher.findings import Finding, LauncherError, Severity
from launcher.machine import Machine
from launcher.plan.build import Planner, Request
from launcher.plan.model import Plan
from launcher.plan.ports import NoPorts, PortTable
from launcher.target.schema import Target

if TYPE_CHECKING:
    from launcher.checks.ignore import Ignores
    from launcher.checks.report import Report

DEFAULT_DYNAMO = (1, 6, 1)
"""Release assumed where neither the machine nor the target names one."""


@dataclass(slots=True)
class Planned:
    """A plan with what made it, for as long as its ports are held."""

    plan: Plan
    planner: Planner
    machine: Machine
    report: Report
    """What the rules over target and plan had to say; no error is among it."""
    ignores: Ignores

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a log should tell: findings, and errors that somebody ignores."""
        return (*self.report.worst_first(), *(each.as_warning() for each in self.report.ignored))


@contextmanager
def planned(
    loaded: Loaded, *, run_name: str | None = None, report: Report | None = None
) -> Iterator[Planned]:
    """Plan the target on the machine. Raises LauncherError for what makes a plan impossible or contradicts itself.

    `run_name` fixes the name of the run's folder, for output that must not change from call to call. With a `report`
    the rules' errors are gathered there instead of raised, for who wants to hear everything.
    """
    from launcher.checks import ignore
    from launcher.checks import report as reports
    from launcher.checks.versions import renames

    settings, resolved = loaded.settings, loaded.resolved
    gathered = reports.Report() if report is None else report
    gathered.given = loaded.given
    ignores = ignore.parse(settings.ignore, loaded.given.get("ignore", "--ignore"))
    if not reports.rules(gathered, resolved, ignores) or report is None:
        _raise_errors(gathered)
    machine = machine_for(settings)
    target, renamed = renames.adapt(resolved, machine.packages)
    gathered.findings += ignores.sift(renamed)[0]
    state = (settings.state_dir or settings_module.default_state_dir()).absolute()
    name = run_name or f"{target.name}-{secrets.token_hex(3)}"
    _check_socket_paths(str(state / name), given_by=loaded.given.get("state_dir", "the default"))
    ceiling = min(32767, machine.ephemeral_range[0] - 1)
    try:
        table = PortTable(target.network.base_port, ceiling)
    except NoPorts as error:
        raise LauncherError(
            Finding(
                code="ports-exhausted",
                what=str(error),
                where=resolved.origin("network", "base_port"),
                fix="choose a lower --base-port, or stop another launcher on this machine",
            )
        ) from None
    try:
        join = joining.join_for(settings, loaded.given, target, machine)
        request = Request(
            run_dir=str(state / name),
            cache_dir=str((settings.cache_dir or settings_module.default_cache_dir()).absolute()),
            python=settings_module.python_for(settings),
            dynamo=releases.numbers(releases.of(target, machine.packages).dynamo) or DEFAULT_DYNAMO,
            native=loaded.native,
            json_logs=wants_json(settings),
            http_port=_public_port(target.network.http_port, target.network.http_host, table, "http"),
            admin_port=_public_port(target.network.admin_port, target.network.admin_host, table, "admin"),
            inherited=dict(os.environ),
            join=join,
            vocabulary="" if machine.simulated else _vocabulary(target),
            lost_home=lost_home(os.environ),
        )
        planner = Planner(target, machine, request, table)
        plan = planner.plan()
        reports.plan_rules(gathered, resolved, plan, machine, ignores)
        if report is None:
            _raise_errors(gathered)
        yield Planned(plan, planner, machine, gathered, ignores)
    finally:
        table.close()


def lost_home(environ: Mapping[str, str]) -> str | None:
    """The user's home folder where nothing can be written into it, empty where there is none; None where it serves."""
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        return ""
    return None if os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK) else home


def _vocabulary(target: Target) -> str:
    """Folder of the harmony vocabulary that `launcher download` staged, where no variable names another."""
    from launcher.download import harmony

    if target.engine.kind == "mocker" or harmony.VARIABLE in os.environ:
        return ""
    return harmony.find(os.environ).env().get(harmony.VARIABLE, "")


def unfit(loaded: Loaded, planned: Planned) -> list[Finding]:
    """What the doctor says of the GPUs of the machine that `--machine` names, as warnings; nothing without one.

    A plan for a machine that has too few GPUs, or other ones, can be looked at, but shall not look right.
    """
    if loaded.settings.machine is None:
        return []
    from launcher.checks import report as reports
    from launcher.checks.machine import IMAGINED
    from launcher.plan.build import here

    resolved, plan = loaded.resolved, planned.plan
    found = run_checks(IMAGINED, here(resolved.target, plan.join), plan, planned.machine)
    kept, ignored = planned.ignores.sift(reports.placed(each, resolved, loaded.given) for each in found)
    warnings = [dataclasses.replace(each, severity=Severity.WARNING) for each in kept]
    return warnings + [each.as_warning() for each in ignored]


def check_start(loaded: Loaded, planned: Planned) -> None:
    """Every check that a start needs, added to the plan's report. Raises LauncherError with all errors."""
    before_start(loaded, planned)
    _raise_errors(planned.report)


def before_start(loaded: Loaded, planned: Planned) -> None:
    """Every check that a start needs, added to the plan's report."""
    from launcher.checks import report as reports
    from launcher.checks.machine import LOGS_GROUP

    report, resolved, machine = planned.report, loaded.resolved, planned.machine
    reports.before_start(report, resolved, planned.plan, machine, os.environ, planned.ignores)
    if loaded.settings.log_dir is not None:
        folder = str(loaded.settings.log_dir.absolute())
        found = list(run_checks(LOGS_GROUP.checks, folder, machine))
        report.add(LOGS_GROUP, found, planned.ignores, resolved)


def _raise_errors(report: Report) -> None:
    if report.errors:
        raise LauncherError(report.errors, report.exit_code)


def _public_port(wanted: int, host: str, table: PortTable, purpose: str) -> int:
    """A port that others know is never moved; 0 asks for any."""
    return wanted if wanted else table.take("launcher", purpose)


def _check_socket_paths(run_dir: str, given_by: str) -> None:
    paths = (*events.sockets(run_dir), vllm.events_socket(run_dir, "aggregated-999"))
    longest = max(len(os.fsencode(path)) for path in paths)
    if longest > events.LONGEST_SOCKET:
        raise LauncherError(
            Finding(
                code="state-dir-long",
                what=f"the run's folder {run_dir} makes a socket path of {longest} bytes",
                where=given_by if given_by.startswith(("-", "L")) else "the state folder",
                why=f"Linux takes {events.LONGEST_SOCKET}",
                fix="a shorter --state-dir, such as /run/launcher",
            )
        )
