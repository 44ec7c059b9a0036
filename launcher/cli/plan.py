"""Show the exact processes that a target becomes on this machine. Starts nothing."""

from __future__ import annotations

import argparse
import json
import sys

from launcher.cli import common, joining, planning
from launcher.findings import Exit


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    common.add_target_options(parser)
    common.add_machine_option(parser)
    joining.add_options(parser)
    add_output_option(parser)
    parser.add_argument(
        "--explain", action="store_true", help="show where each value of the target came from"
    )


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """`--output`, also of `serve --dry-run`."""
    parser.add_argument(
        "--output", choices=("table", "json", "bash"), help="form of the plan (default: table)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan, or the origins of the target's values."""
    loaded = common.load(args)
    if getattr(args, "explain", False):
        from launcher.plan.output import explain

        sys.stdout.write(explain.render(loaded.resolved))
        return Exit.OK
    with planning.planned(loaded, run_name=f"{loaded.resolved.target.name}.run") as planned:
        if args.output == "json":
            json.dump(planned.plan.to_json(), sys.stdout, indent=2)
            sys.stdout.write("\n")
        elif args.output == "bash":
            from launcher.plan.output import bash

            sys.stdout.write(bash.render(planned.plan))
        else:
            from launcher.plan.output import table

            sys.stdout.write(table.render(planned.plan))
        for finding in (*planned.findings, *planning.unfit(loaded, planned)):
            print(finding.line(), file=sys.stderr)
    return Exit.OK
