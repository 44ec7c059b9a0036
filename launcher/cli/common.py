"""What the commands that read a target have in common: options, settings, target, machine, plan."""

from __future__ import annotations

import argparse
import dataclasses
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import settings as settings_module
from launcher.checks.base import run_checks
from launcher.checks.versions import releases
from launcher.cli import joining
from launcher.engines import events, vllm
from launcher.findings import Finding, LauncherError, Severity, short
from launcher.machine import PRODUCTS, Machine, detect
from launcher.plan.build import Planner, Request
from launcher.plan.model import Plan
from launcher.plan.ports import NoPorts, PortTable
from launcher.settings import Settings
from launcher.target.resolve import Resolved, resolve
from launcher.target.schema import Network, Target

if TYPE_CHECKING:
    from launcher.checks.ignore import Ignores
    from launcher.checks.report import Report

DEFAULT_DYNAMO = (1, 6, 1)
"""Release assumed where neither the machine nor the target names one."""


MOST_GPUS = 1024
"""Of an imagined machine; the schema lets no target have more."""


ONLY_SERVING = ("--restart-budget", "--view", "--log-dir", "--state-dir", "--cache-dir", "--python")
"""Options without effect where nothing runs on this machine: taken, so that a command line can be reused, not shown."""
ONLY_PLANNING = (
    "--http-host",
    "--http-port",
    "--admin-host",
    "--admin-port",
    "--base-port",
    "--require-fast-lane",
)
"""And those without effect where nothing is planned either."""


def add_target_options(parser: argparse.ArgumentParser, *, hidden: Sequence[str] = ()) -> None:
    """The options that say what to run, `hidden` ones without a word about them.

    None has a default here, so that the environment's values count; the help has those of settings and schema.
    """
    group = parser.add_argument_group("what to run")

    def option(flag: str, **kwargs: Any) -> None:
        if flag in hidden:
            kwargs["help"] = argparse.SUPPRESS
        group.add_argument(flag, default=argparse.SUPPRESS, **kwargs)

    network = Network()

    option("--target", metavar="NAME", help="a target of configs/targets, or a path to a target file")
    option("--engine", metavar="KIND", help="auto (the target's own), vllm, trtllm, mocker, echo")
    option("--set", metavar="PATH=VALUE", action="append", help="change one value of the target; repeatable")
    option(
        "--ignore", metavar="CODE[=REASON]", action="append", help="start in spite of a finding; repeatable"
    )
    option("--http-host", metavar="ADDRESS", help=f"where the API listens (default: {network.http_host})")
    option(
        "--http-port",
        metavar="PORT",
        help=f"the API's port; 0 takes a free one (default: {network.http_port})",
    )
    option(
        "--admin-host",
        metavar="ADDRESS",
        help=f"where the admin server listens (default: {network.admin_host})",
    )
    option(
        "--admin-port",
        metavar="PORT",
        help=f"the admin server's port; 0 takes a free one (default: {network.admin_port})",
    )
    option(
        "--base-port",
        metavar="PORT",
        help=f"start of the internal ports; a taken block moves up (default: {network.base_port})",
    )
    option(
        "--restart-budget",
        metavar="N",
        help="restarts of one process within ten minutes; 0: the first death ends the run (default: "
        f"{Settings.model_fields['restart_budget'].default})",
    )
    option(
        "--require-fast-lane",
        action="store_true",
        help="not ready, and at once, where KV moves from prefill to decode by TCP",
    )
    option(
        "--log-format",
        metavar="FORMAT",
        help="text, json, or auto: json in a container without a terminal (default: auto)",
    )
    option(
        "--view",
        metavar="VIEW",
        help="live, plain, or auto: live on a terminal with text logs (default: auto)",
    )
    option("--log-dir", metavar="DIR", help="also keep each process's log in a file here")
    option(
        "--state-dir",
        metavar="DIR",
        help="where runs keep their private folders (default: $XDG_RUNTIME_DIR, else /tmp)",
    )
    option(
        "--cache-dir",
        metavar="DIR",
        help="where compile caches are kept (default: below HF_HOME, else ~/.cache)",
    )
    option("--config-dir", metavar="DIR", help="a folder with targets/ in place of the built-in one")
    option(
        "--python", metavar="PATH", help="the interpreter that has Dynamo and the engine (default: this one)"
    )


def add_machine_option(parser: argparse.ArgumentParser) -> None:
    """For commands that start nothing: plan for a machine that is not this one."""
    parser.add_argument(
        "--machine",
        metavar="GPU[:COUNT]",
        default=argparse.SUPPRESS,
        help="plan for another machine, such as H200:8",
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A command's settings and the target that they name."""

    settings: Settings
    given: dict[str, str]
    """Setting to who set it."""
    resolved: Resolved
    native: str
    """The engine that the target was written for."""


def load(args: argparse.Namespace) -> Loaded:
    """Settings and target. Raises LauncherError for anything wrong with either."""
    values = {name: value for name, value in vars(args).items() if name in Settings.model_fields}
    for repeatable in ("set", "ignore"):
        if repeatable in values:
            values[repeatable] = tuple(values[repeatable])
    settings, given = settings_module.load(values)
    if settings.target is None:
        from launcher.target import catalog

        raise LauncherError(
            Finding(
                code="target-missing",
                what="no target was named",
                where="the command line",
                fix="--target NAME with one of: " + ", ".join(catalog.names(settings.config_dir)),
            )
        )
    folder = settings.config_dir
    try:
        resolved = resolve(settings.target, settings.overrides(given), folder)
    except LauncherError as error:
        by = given.get("target", "--target")
        found = [
            dataclasses.replace(each, where=by) if each.where == "--target" else each
            for each in error.findings
        ]
        raise LauncherError(found, error.exit_code) from None
    native = resolved.target.engine.kind
    if settings.engine != "auto":
        native = resolve(settings.target, (), folder).target.engine.kind
    return Loaded(settings, given, resolved, native)


def machine_for(settings: Settings) -> Machine:
    """The machine to plan for: this one, or the one that `--machine` names."""
    if settings.machine is None:
        return detect(python=settings_module.python_for(settings))
    product, _, count = settings.machine.partition(":")
    wrong_count = count and not (count.isdecimal() and len(count) <= 4 and int(count) <= MOST_GPUS)
    if product.upper() not in PRODUCTS or wrong_count:
        raise LauncherError(
            Finding(
                code="machine-unknown",
                what=f"{short(settings.machine)!r} is no machine",
                where="--machine",
                fix=f"GPU[:COUNT], at most {MOST_GPUS}, with one of: " + ", ".join(sorted(PRODUCTS)),
            )
        )
    return Machine.like(product, int(count) if count else None)


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


def wants_json(settings: Settings) -> bool:
    """Whether log lines are JSON objects: as asked, else text on a terminal and JSON in a container's log."""
    return json_log(settings.log_format)


def json_log(asked: str) -> bool:
    """The same for the bare setting, which is known before the others have been checked."""
    if asked == "auto":
        return not sys.stdout.isatty() and (os.getpid() == 1 or "KUBERNETES_SERVICE_HOST" in os.environ)
    return asked == "json"


def wants_view(settings: Settings) -> tuple[bool, tuple[Finding, ...]]:
    """Whether a live view stands below the log, and a warning where it was asked for and cannot be had."""
    missing = ""
    if not sys.stdout.isatty():
        missing = "standard output is no terminal"
    elif os.environ.get("TERM", "dumb") == "dumb":
        missing = "the terminal (TERM) cannot move its cursor"
    elif wants_json(settings):
        missing = "the log is JSON"
    if settings.view != "live" or not missing:
        return settings.view != "plain" and not missing, ()
    warning = Finding(
        code="view-plain",
        severity=Severity.WARNING,
        what=f"no live view: {missing}",
        where="--view",
        fix="--view auto takes one only where it can be had",
    )
    return False, (warning,)


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


def as_path(text: str) -> Path:
    """A path given on the command line, absolute."""
    return Path(text).expanduser().absolute()
