"""What the commands that read a target have in common: options, settings, target, machine."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import settings as settings_module
from launcher.findings import Finding, LauncherError, Severity, short
from launcher.machine import PRODUCTS, Machine, detect
from launcher.settings import Settings
from launcher.target.resolve import Resolved, resolve
from launcher.target.schema import Network

if TYPE_CHECKING:
    pass

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


def as_path(text: str, where: str) -> Path:
    """A path given on the command line, absolute. Raises LauncherError where it is empty."""
    return Path(not_empty(text, where)).expanduser().absolute()


def not_empty(text: str, where: str) -> str:
    """The path as given. Raises LauncherError where it is empty: it would quietly mean the current folder."""
    if not text:
        raise LauncherError(
            Finding(
                code="command-line",
                what="the path is empty",
                where=where,
                fix="give one; . is the current folder",
            )
        )
    return text
