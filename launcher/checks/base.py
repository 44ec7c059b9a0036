"""What a check is, and how checks are run: each one speaks, whatever the others do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from launcher.findings import Exit, Finding


class Check(NamedTuple):
    """A pure function from its subject to findings; its docstring is the background of what it says.

    The subject differs by group: the resolved target; target and plan; target, plan and machine.
    """

    run: Callable[..., Iterable[Finding]]
    codes: tuple[str, ...]
    """The codes of everything that it can say."""
    ignorable: bool = True
    """False where nothing could be planned or started with its error ignored."""


class Group(NamedTuple):
    """Checks of one subject."""

    name: str
    checks: tuple[Check, ...]
    exit_code: Exit
    """Of a start that an error of this group stops."""


def run_checks(checks: Iterable[Check], *subject: Any) -> Iterator[Finding]:
    """Every check's findings. A check that itself fails is a finding too (`check-failed`) and stops no other."""
    for each in checks:
        try:
            yield from each.run(*subject)
        except Exception as error:  # whatever it is, the other checks must still speak
            name = f"{each.run.__module__.rpartition('.')[2]}.{each.run.__name__}"
            yield Finding(
                code="check-failed",
                what=f"the check {name} failed itself: {type(error).__name__}: {error}",
                why=f"nothing is known about {', '.join(each.codes)}; this is the launcher's fault",
                fix="report it; --ignore check-failed starts without this check",
            )


def background_of(checks: Iterable[Check], code: str) -> str | None:
    """What lies behind a finding of this code, or None where none of the checks has it."""
    return next((inspect.getdoc(each.run) for each in checks if code in each.codes), None)
