"""All checks of a target on a machine, and what they had to say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.checks import plan as plan_checks
from launcher.checks import target, versions
from launcher.checks.base import Group, run_checks
from launcher.checks.ignore import Ignored, Ignores
from launcher.findings import Exit, Finding, Severity
from launcher.machine import Machine
from launcher.plan.build import here
from launcher.plan.model import Plan
from launcher.settings import TARGET_FIELDS, Settings
from launcher.target.resolve import Resolved

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(slots=True)
class Report:
    """What was found, and what was not looked at."""

    findings: list[Finding] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    ran: int = 0
    """Checks that ran."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Group of checks that did not run, and why: nothing is passed in silence."""
    exit_code: Exit = Exit.OK
    """Of a start that the errors stop."""
    given: Mapping[str, str] | None = None
    """Setting to who set it; None where nobody asked for settings."""

    def add(self, group: Group, findings: Sequence[Finding], ignores: Ignores, resolved: Resolved) -> None:
        """Take in what a group said."""
        kept, ignored = ignores.sift(placed(finding, resolved, self.given) for finding in findings)
        self.findings += kept
        self.ignored += ignored
        self.ran += len(group.checks)
        if any(finding.severity is Severity.ERROR for finding in kept):
            # A wrong target or command line says more than a machine that does not fit it.
            self.exit_code = (
                Exit.USAGE if Exit.USAGE in (self.exit_code, group.exit_code) else group.exit_code
            )

    def worst_first(self) -> list[Finding]:
        """Errors, warnings, the rest; each in the order in which they were found."""
        return sorted(self.findings, key=lambda finding: _ORDER[finding.severity])

    def count(self, severity: Severity) -> int:
        """Findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    def to_json(self) -> dict[str, Any]:
        """The report as scripts read it."""
        return {
            "ok": not self.errors,
            "errors": self.count(Severity.ERROR),
            "warnings": self.count(Severity.WARNING),
            "checks": self.ran,
            "findings": [finding.to_json() for finding in self.worst_first()],
            "ignored": [{**each.finding.to_json(), "reason": each.reason} for each in self.ignored],
            "skipped": dict(self.skipped),
        }


def placed(finding: Finding, resolved: Resolved, given: Mapping[str, str] | None = None) -> Finding:
    """The finding with the file and line behind a dotted path such as `hardware.shm_gib`.

    A flag such as `--http-port` becomes whatever set the value: a variable, the target's file, or the default.
    """
    setting = finding.where.removeprefix("--").replace("-", "_")
    if given is not None and finding.where.startswith("--") and setting in Settings.model_fields:
        path = TARGET_FIELDS.get(setting)
        origin = resolved.origin(*path) if path else given.get(setting, "default")
        return dataclasses.replace(finding, where="the default" if origin == "default" else origin)
    path = tuple(finding.where.split("."))
    if len(path) < 2 or path[0] not in resolved.document:
        return finding
    origin = resolved.origin(*path)
    if origin == "default":
        return finding
    return dataclasses.replace(finding, where=f"{origin} ({finding.where})")


def rules(report: Report, resolved: Resolved, ignores: Ignores) -> bool:
    """The rules over the target alone; False where nothing can be planned with what they found."""
    report.add(target.GROUP, list(run_checks(target.CHECKS, resolved)), ignores, resolved)
    fatal = {code for check in target.CHECKS if not check.ignorable for code in check.codes}
    return not any(finding.code in fatal for finding in report.errors)


def plan_rules(report: Report, resolved: Resolved, plan: Plan, machine: Machine, ignores: Ignores) -> None:
    """The rules that need a plan and the releases that will run it, on whatever machine."""
    if plan.join.roles:
        # Several nodes hold it: this one's share of it is what counts here.
        report.findings = [each for each in report.findings if each.code != "node-small"]
    for group in (plan_checks.GROUP, versions.GROUP):
        report.add(group, list(run_checks(group.checks, resolved, plan, machine)), ignores, resolved)


def before_start(
    report: Report,
    resolved: Resolved,
    plan: Plan,
    machine: Machine,
    environ: Mapping[str, str],
    ignores: Ignores,
) -> None:
    """Everything that a start needs beyond a plan without contradictions."""
    # Here, not above: a dry run asks none of them.
    from launcher.checks import cluster, etcd, inherited, model
    from launcher.checks import machine as machine_checks

    installed, surrounded = (resolved, plan, machine), (resolved, plan, machine, environ)
    elsewhere = "--machine plans for another machine" if machine.simulated else ""
    no_model = "the simulator reads no model" if resolved.target.engine.kind == "mocker" else ""
    no_server = "file discovery needs no server" if etcd.backend(plan) == "file" else ""
    groups: tuple[tuple[Group, tuple[Any, ...], str], ...] = (
        (versions.INTERPRETER_GROUP, installed, elsewhere),
        (versions.INSTALLED_GROUP, installed, elsewhere),
        (inherited.GROUP, surrounded, elsewhere),
        (machine_checks.GROUP, (here(resolved.target, plan.join), plan, machine), ""),
        (model.GROUP, surrounded, elsewhere or no_model),
        (cluster.GROUP, surrounded, elsewhere or no_server),
    )
    for group, subject, why in groups:
        if why:
            report.skipped[group.name] = why
        else:
            report.add(group, list(run_checks(group.checks, *subject)), ignores, resolved)
