"""What is installed decides which flags exist: rules over a plan and the releases that will run it.

To add one: a function `(resolved, plan, machine) -> Iterable[Finding]`, and a line below.
"""

from __future__ import annotations

from launcher.checks.base import Check, Group
from launcher.checks.versions import features, flags, installed
from launcher.findings import Exit

CHECKS: tuple[Check, ...] = (
    Check(flags.flags, ("flag-unknown", "flag-version", "flag-value")),
    Check(flags.deprecated, ("flag-deprecated",)),
    Check(features.eagle3_disaggregated, ("eagle3-disagg",)),
    Check(features.postprocess_workers, ("trt-postprocess",)),
    Check(installed.tried, ("dynamo-release",)),
    Check(installed.skew, ("version-skew", "version-pin")),
)
"""Rules that hold wherever the plan is made: a dry run has them too."""

INTERPRETER: tuple[Check, ...] = (Check(installed.python, ("python-missing",), ignorable=False),)
"""What the command line says about this machine."""

INSTALLED: tuple[Check, ...] = (
    Check(installed.present, ("dynamo-missing", "engine-missing", "nixl-missing")),
)
"""What this machine has to have before anything starts."""

GROUP = Group("versions", CHECKS, Exit.USAGE)
INTERPRETER_GROUP = Group("interpreter", INTERPRETER, Exit.USAGE)
INSTALLED_GROUP = Group("installed", INSTALLED, Exit.CHECK_FAILED)
