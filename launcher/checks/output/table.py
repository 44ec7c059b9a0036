"""A report as a table that a person reads in ten seconds: worst first, what to do under what is wrong."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator

from launcher.checks.report import Report
from launcher.findings import Finding, Severity, printable

_COLOURS = {Severity.ERROR: "\x1b[31m", Severity.WARNING: "\x1b[33m", Severity.INFO: "\x1b[36m"}
_DIM, _BOLD, _OFF = "\x1b[2m", "\x1b[1m", "\x1b[0m"
NARROWEST = 60


def render(report: Report, head: str, seconds: float) -> str:
    """The whole page."""
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = max(NARROWEST, min(160, shutil.get_terminal_size((110, 24)).columns))
    findings = report.worst_first()
    lines = [head, ""]
    said = [*findings, *(each.finding for each in report.ignored)]
    column = max([len(finding.code) for finding in said], default=0)
    for finding in findings:
        lines += _rows(finding, finding.severity.value, column, width, colour)
    for each in report.ignored:
        text = f"{each.finding.what} ({each.reason or 'no reason given'})"
        shown = Finding(code=each.finding.code, what=text, severity=Severity.INFO)
        lines += _rows(shown, "ignored", column, width, colour)
    if findings or report.ignored:
        lines.append("")
    for why in dict.fromkeys(report.skipped.values()):
        groups = ", ".join(group for group, other in report.skipped.items() if other == why)
        lines += _wrap(f"not looked at: {groups} ({why})", width)
    lines.append(_summary(report, seconds))
    if findings:
        lines.append(
            f"launcher explain {findings[0].code} says more; --ignore CODE=reason starts in spite of it"
        )
    return "\n".join(lines) + "\n"


def _summary(report: Report, seconds: float) -> str:
    counts = [
        f"{number} {word}{'' if number == 1 else 's'}"
        for number, word in (
            (report.count(Severity.ERROR), "error"),
            (report.count(Severity.WARNING), "warning"),
            (report.count(Severity.INFO), "note"),
        )
        if number
    ]
    return f"{', '.join(counts) or 'nothing to say'}; {report.ran} checks in {seconds:.2f} s"


def _rows(finding: Finding, label: str, column: int, width: int, colour: bool) -> Iterator[str]:
    indent = " " * (9 + column + 2)
    start = f"{label:<9}{finding.code:<{column}}  "
    body = _wrap(finding.what, width - len(indent))
    if colour:
        start = f"{_COLOURS[finding.severity]}{label:<9}{_OFF}{_BOLD}{finding.code:<{column}}{_OFF}  "
    yield start + body[0]
    yield from (indent + line for line in body[1:])
    where = "" if finding.where in ("default", "the default") else finding.where
    for mark, text in (("->", finding.fix), ("at", where)):
        if not text:
            continue
        first, *rest = _wrap(text, width - len(indent) - 3)
        for line in (f"{indent}{mark} {first}", *(f"{indent}   {line}" for line in rest)):
            yield f"{_DIM}{line}{_OFF}" if colour and mark == "at" else line


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), max(20, width), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]
