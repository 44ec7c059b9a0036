"""Every group of checks, in the order in which they run, and what an error in one of them means."""

from __future__ import annotations

from typing import NamedTuple

from launcher.checks import cluster, inherited, machine, model, plan, target, versions
from launcher.checks.base import Check, background_of
from launcher.findings import Exit


class Group(NamedTuple):
    """Checks of one subject."""

    name: str
    checks: tuple[Check, ...]
    exit_code: Exit
    """Of a start that an error of this group stops."""


TARGET = Group("target", target.CHECKS, Exit.USAGE)
PLAN = Group("plan", plan.CHECKS, Exit.USAGE)
VERSIONS = Group("versions", versions.CHECKS, Exit.USAGE)
INTERPRETER = Group("interpreter", versions.INTERPRETER, Exit.USAGE)
INSTALLED = Group("installed", versions.INSTALLED, Exit.CHECK_FAILED)
ENVIRONMENT = Group("environment", inherited.CHECKS, Exit.USAGE)
MACHINE = Group("machine", machine.CHECKS, Exit.CHECK_FAILED)
MODEL = Group("model", model.CHECKS, Exit.CHECK_FAILED)
CLUSTER = Group("cluster", cluster.CHECKS, Exit.CHECK_FAILED)

GROUPS = (TARGET, PLAN, VERSIONS, INTERPRETER, INSTALLED, ENVIRONMENT, MACHINE, MODEL, CLUSTER)

CHECKS: tuple[Check, ...] = tuple(check for group in GROUPS for check in group.checks)


def codes() -> list[str]:
    """The codes of everything that a check can say, `check-failed` among them."""
    return sorted({code for check in CHECKS for code in check.codes} | {"check-failed", "flag-renamed"})


def never_ignored() -> set[str]:
    """Codes of errors with which nothing could be planned."""
    return {code for check in CHECKS if not check.ignorable for code in check.codes}


def background(code: str) -> str | None:
    """What lies behind a check's finding, or None where no check has the code."""
    return background_of(CHECKS, code)


def group_of(code: str) -> Group | None:
    """The group whose checks say it."""
    return next((group for group in GROUPS for check in group.checks if code in check.codes), None)
