"""What a check has to say, and the one exception that carries it to the command line.

Everything left of `supervise` reports through these two types: a `Finding` says what is wrong, where it was
set and what would be right; `LauncherError` ends the command with a documented exit code and its findings.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


class Exit(enum.IntEnum):
    """Exit codes of every command; scripts rely on them."""

    OK = 0
    """Stopped as asked."""
    USAGE = 2
    """The command line, environment or target is wrong, or standard output cannot be written; nothing was started."""
    CHECK_FAILED = 3
    """A check of the target, the plan or the machine failed; nothing was started."""
    PROCESS_FAILED = 4
    """A process failed for good while starting or serving."""
    KILLED = 5
    """The drain deadline passed and something was killed."""


class Severity(enum.StrEnum):
    """How much a finding matters; `error` stops a start."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a check has to say."""

    code: str
    """Stable identifier, for `--ignore` and `launcher explain`, such as `port-taken`."""
    what: str
    """What was found, with the value."""
    severity: Severity = Severity.ERROR
    where: str = ""
    """Where the value was set: a file and line, `--set`, an environment variable."""
    why: str = ""
    """Why it matters to the person who runs it."""
    fix: str = ""
    """What to do, with the nearest right value."""
    link: str = ""
    """Evidence: an issue (`vllm#42024`), a page, or a file of this repository."""

    def line(self) -> str:
        """The finding as one line of text for stderr or a log; `launcher explain` has the evidence."""
        parts = [f"{self.severity.value}[{self.code}]: {self.what}"]
        if self.where in ("default", "the default"):
            parts.append("(the default)")
        elif self.where:
            parts.append(f"(set in {self.where})")
        if self.why:
            parts.append(f"- {self.why}")
        if self.fix:
            parts.append(f"- {self.fix}")
        return printable(" ".join(parts))

    def to_json(self) -> dict[str, str]:
        """The finding as a JSON object; empty fields are left out."""
        fields = {
            "code": self.code,
            "severity": self.severity.value,
            "what": self.what,
            "where": self.where,
            "why": self.why,
            "fix": self.fix,
            "link": self.link,
        }
        return {key: value for key, value in fields.items() if value}


# Line ends and terminal codes, and the marks that turn the direction of text around.
_UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def printable(text: str) -> str:
    """The text on one line, without anything that a terminal would obey: a value may come from anywhere."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


class LauncherError(Exception):
    """Ends a command: one or more findings and the exit code that they mean."""

    def __init__(self, findings: Finding | Sequence[Finding], exit_code: Exit = Exit.USAGE) -> None:
        self.findings: tuple[Finding, ...] = (findings,) if isinstance(findings, Finding) else tuple(findings)
        self.exit_code = exit_code
        super().__init__("; ".join(finding.line() for finding in self.findings))


def short(text: str, most: int = 80) -> str:
    """The text, cut where it is too long for a message."""
    return text if len(text) <= most else text[: most - 3] + "..."


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word closest to `word`, or None where nothing is close."""
    found = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A fix for a misspelt name: the nearest known one, else the whole list."""
    names = sorted(known)
    close = nearest(word, names)
    if close is not None:
        return f"did you mean {close!r}?"
    return "known: " + ", ".join(names)


def code_fix(code: str, known: Iterable[str]) -> str:
    """A fix for what is no finding's code; there are too many to list."""
    close = nearest(code, known)
    return (f"did you mean {close!r}? " if close else "") + "launcher explain lists them"
