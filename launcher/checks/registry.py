"""Every group of checks, in the order in which they run. Imports them all: only who needs them all imports this."""

from __future__ import annotations

from launcher.checks import cluster, inherited, machine, model, plan, target, versions
from launcher.checks.base import Check, Group, background_of

GROUPS: tuple[Group, ...] = (
    target.GROUP,
    plan.GROUP,
    versions.GROUP,
    versions.INTERPRETER_GROUP,
    versions.INSTALLED_GROUP,
    inherited.GROUP,
    machine.GROUP,
    machine.LOGS_GROUP,
    model.GROUP,
    cluster.GROUP,
)
CHECKS: tuple[Check, ...] = tuple(check for group in GROUPS for check in group.checks)


def codes() -> list[str]:
    """The codes of everything that a check can say, `check-failed` among them."""
    return sorted({code for check in CHECKS for code in check.codes} | {"check-failed", "flag-renamed"})


def never_ignored() -> set[str]:
    """Codes of errors with which nothing could be planned or started."""
    return {code for check in CHECKS if not check.ignorable for code in check.codes}


def background(code: str) -> str | None:
    """What lies behind a check's finding, or None where no check has the code."""
    return background_of(CHECKS, code)


def group_of(code: str) -> Group | None:
    """The group whose checks say it."""
    return next((group for group in GROUPS for check in group.checks if code in check.codes), None)
