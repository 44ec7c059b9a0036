"""Make a benchmark trace from a seed, or check one before hours of GPU time go into it. Needs no GPU."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from launcher import outputs
from launcher.bench.limits import context_limit
from launcher.bench.trace import figures, make, read, write
from launcher.bench.trace.model import CONTEXT, DEFAULT_BLOCK, Shape
from launcher.cli import common
from launcher.cli.numbers import number
from launcher.findings import Exit, Finding, LauncherError
from launcher.target.schema import Target, Workload

ROUNDS = 40
"""Requests for each session at work, where `--requests` does not say: enough for the means to settle."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="make|check")
    maker = actions.add_parser("make", help="write a trace of the target's traffic", description=make.__doc__)
    add_target_choice(maker)
    maker.add_argument(
        "--out", metavar="FILE", required=True, help="where to write it; - for standard output"
    )
    number(
        maker,
        "--requests",
        least=1,
        most=make.MOST_REQUESTS,
        why=make.IN_MEMORY,
        help=f"default: {ROUNDS} for each session at work",
    )
    number(maker, "--active", least=1, help="sessions at work at once (default: the target's concurrency)")
    number(maker, "--isl", least=1, help="mean input tokens (default: the target's)")
    number(maker, "--osl", least=1, help="mean output tokens (default: the target's)")
    maker.add_argument(
        "--hit", type=float, metavar="SHARE", help="share of input tokens in a warm cache, such as 0.9"
    )
    number(
        maker, "--block", least=1, help=f"tokens of a hash block (default: the target's, or {DEFAULT_BLOCK})"
    )
    number(
        maker,
        "--shared",
        help="tokens of the prefix that all sessions share (default: five eighths of the input)",
    )
    number(maker, "--limit", least=1, help="context length (default: the target's)")
    number(maker, "--seed", help="default: the target's")
    maker.add_argument(
        "--over-limit",
        action="store_true",
        help="let sessions outgrow the context length, as the page's trace does",
    )
    checker = actions.add_parser(
        "check", help="say what a trace is and what is wrong with it", description=read.__doc__
    )
    checker.add_argument("trace", metavar="FILE")
    add_target_choice(checker)
    number(checker, "--block", least=1, help="tokens of a hash block (default: what fits the rows)")
    number(checker, "--limit", least=1, help="context length (default: the target's)")
    for each in (maker, checker):
        each.add_argument("--json", action="store_true", help="the figures as JSON on standard output")


def run(args: argparse.Namespace) -> int:
    """Make or check; the figures go to standard error where the trace itself goes to standard output."""
    target = _target(args)
    if args.action == "check":
        return _check(args, target)
    shape = shape_for(args, target)
    path = None
    if args.out != "-":
        path = outputs.file(common.as_path(args.out, "--out"), "--out")
    began = time.monotonic()
    try:
        rows = make.make(shape)
    except ValueError as error:
        raise LauncherError(Finding(code="trace-shape", what=str(error), where="the command line")) from None
    content = write.text(rows)
    achieved = figures.describe(rows, shape.block, shape.limit)
    if path is None:
        sys.stdout.write(content)
        print(achieved.text(), file=sys.stderr)
        return Exit.OK
    try:
        digest = write.write(path, content)
    except OSError as error:
        raise outputs.cannot_write(path, error, "--out") from None
    if args.json:
        json.dump({"file": str(path), "sha256": digest, **achieved.to_json()}, sys.stdout, indent=2)
        print()
    else:
        print(achieved.text())
        print(
            f"wanted          input {shape.isl:,}, output {shape.osl:,}, hits {shape.hit:.1%}, seed {shape.seed}"
        )
        spent = time.monotonic() - began
        print(f"{path}: {len(content) / 1e6:.1f} MB, SHA-256 {digest[:12]}…, made in {spent:.1f} s")
    return Exit.OK


def shape_for(args: argparse.Namespace, target: Target | None) -> Shape:
    """The shape that the options ask for, the target's where they say nothing."""
    workload = target.workload if target is not None else None
    active = args.active if args.active is not None else workload.concurrency if workload else 64
    hit = args.hit if args.hit is not None else _hit(workload)
    isl = args.isl or (workload.isl if workload else None)
    osl = args.osl or (workload.osl if workload else None)
    if isl is None or osl is None or hit is None:
        raise LauncherError(
            Finding(
                code="trace-shape",
                what="the shape is not known: "
                + ("no target" if workload is None else "the target has no hit rate"),
                where="the command line",
                fix="--target h200-disagg, or --isl 65536 --osl 400 --hit 0.9",
            )
        )
    limit = args.limit or (context_limit(target) if target is not None else CONTEXT)
    seed = args.seed if args.seed is not None else (workload.seed if workload else 0)
    return Shape(
        requests=args.requests or ROUNDS * active,
        isl=isl,
        osl=osl,
        hit=hit,
        block=args.block or (workload.trace_block if workload and workload.trace_block else DEFAULT_BLOCK),
        limit=limit,
        active=active,
        shared=args.shared,
        over_limit=args.over_limit,
        seed=seed,
    )


def _hit(workload: Workload | None) -> float | None:
    return workload.cache_hit if workload is not None else None


def _target(args: argparse.Namespace) -> Target | None:
    return common.load(args).resolved.target if getattr(args, "target", None) else None


def _check(args: argparse.Namespace, target: Target | None) -> int:
    limit = args.limit or (context_limit(target) if target is not None else CONTEXT)
    # No option names it here.
    where = "the command line"
    trace = read.read(Path(common.not_empty(args.trace, where)), where, block=args.block, limit=limit)
    found = figures.describe(trace.rows, trace.block, limit)
    if args.json:
        notes = [finding.to_json() for finding in trace.findings]
        json.dump({"file": args.trace, "findings": notes, **found.to_json()}, sys.stdout, indent=2)
        print()
    else:
        print(found.text())
        for finding in trace.findings:
            print(finding.line(), file=sys.stderr)
    return Exit.OK


def add_target_choice(parser: argparse.ArgumentParser) -> None:
    """The options that name and change a target, for commands that start no deployment."""
    group = parser.add_argument_group("what for")
    for flag, value, text in (
        ("--target", "NAME", "a target of configs/targets, or a path to a target file"),
        ("--config-dir", "DIR", "a folder with targets/ in place of the built-in one"),
    ):
        group.add_argument(flag, metavar=value, default=argparse.SUPPRESS, help=text)
    group.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=argparse.SUPPRESS,
        help="change one value of the target; repeatable",
    )
