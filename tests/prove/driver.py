"""Serves a target whose plan was changed behind the checks' back, as a broken deployment that nobody noticed.

    python driver.py '{"prefill-0": {"argv": {"--block-size": "16"}, "env": {"NAME": "value"}}}' --target sim ...

A flag with the value null is removed, with "" it is given without a value. `prefix`: words before the command line,
such as `env NAME=value`, which not even a check of the plan's environment sees.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping
from typing import Any

from launcher.cli import serve
from launcher.findings import LauncherError
from launcher.plan.build import Planner
from launcher.plan.model import Plan, Process


def changed(process: Process, change: Mapping[str, Any]) -> Process:
    """The process with flags and variables replaced."""
    argv = list(process.argv)
    for flag, value in change.get("argv", {}).items():
        if flag in argv:
            at = argv.index(flag)
            last = at + 1 == len(argv) or argv[at + 1].startswith("--")
            del argv[at : at + (1 if last else 2)]
        if value is not None:
            argv += [flag, value] if value else [flag]
    argv = [*change.get("prefix", ()), *argv]
    return dataclasses.replace(process, argv=tuple(argv), env={**process.env, **change.get("env", {})})


def main() -> int:
    changes = json.loads(sys.argv[1])
    plan, respawn = Planner.plan, Planner.respawn

    def broken_plan(self: Planner) -> Plan:
        made = plan(self)
        return dataclasses.replace(
            made,
            processes=tuple(changed(process, changes.get(process.name, {})) for process in made.processes),
        )

    def broken_respawn(self: Planner, process: Process, incarnation: int) -> Process:
        return changed(respawn(self, process, incarnation), changes.get(process.name, {}))

    Planner.plan = broken_plan  # type: ignore[method-assign]
    Planner.respawn = broken_respawn  # type: ignore[method-assign]
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    try:
        return serve.run(parser.parse_args(sys.argv[2:]))
    except LauncherError as error:
        print(*(finding.line() for finding in error.findings), sep="\n", file=sys.stderr)
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
