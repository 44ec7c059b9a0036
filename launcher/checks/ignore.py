"""`--ignore CODE[=reason]`: an error that somebody decided to start with, and said why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from launcher.findings import Finding, LauncherError, Severity, code_fix


@dataclasses.dataclass(frozen=True, slots=True)
class Ignored:
    """A finding that does not count, and why."""

    finding: Finding
    reason: str
    where: str
    """Who asked: `--ignore` or `LAUNCHER_IGNORE`."""

    def as_warning(self) -> Finding:
        """As it stands in the log: the finding, no error any more, with the reason."""
        return dataclasses.replace(
            self.finding,
            severity=min(self.finding.severity, Severity.WARNING, key=_RANK.__getitem__),
            what=f"ignored ({self.reason or 'no reason given'}, {self.where}): {self.finding.what}",
        )


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Ignores:
    """Codes that do not count, each with its reason."""

    reasons: Mapping[str, str]
    where: str

    def sift(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[Ignored]]:
        """Those that count, and those that do not."""
        kept: list[Finding] = []
        ignored: list[Ignored] = []
        for finding in findings:
            if finding.code in self.reasons:
                ignored.append(Ignored(finding, self.reasons[finding.code], self.where))
            else:
                kept.append(finding)
        return kept, ignored


def parse(texts: Sequence[str], where: str) -> Ignores:
    """`CODE` or `CODE=reason`, each. Raises LauncherError for a code that no check has, or that cannot be ignored."""
    reasons: dict[str, str] = {}
    if not texts:
        return Ignores(reasons, where)
    # All checks are imported for this; a start without --ignore does not need their names here.
    from launcher.checks import registry

    faults = []
    known, fixed = registry.codes(), registry.never_ignored()
    for text in texts:
        code, _, reason = text.partition("=")
        code = code.strip()
        if code in fixed:
            faults.append(
                Finding(
                    code="ignore-refused",
                    what=f"{code} cannot be ignored",
                    where=where,
                    why="nothing could be planned or started with it",
                    fix="correct what it says",
                )
            )
        elif code not in known:
            faults.append(
                Finding(
                    code="ignore-unknown",
                    what=f"no check says {code!r}",
                    where=where,
                    why="the error that was meant would still stop the start",
                    fix=code_fix(code, known) if code else "CODE=reason, with a code as findings show it",
                )
            )
        reasons[code] = reason.strip()
    if faults:
        raise LauncherError(faults)
    return Ignores(reasons, where)
