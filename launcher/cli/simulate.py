"""Predict what a target would do on its GPUs, and what every other split of them would. Needs no GPU.

Runs the target's traffic through Dynamo's own offline simulator, in simulated time: a case takes seconds. The figures
are predictions, and the output says what they leave out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from launcher import outputs
from launcher.bench.trace.make import IN_MEMORY, MOST_REQUESTS
from launcher.checks.report import placed
from launcher.checks.versions import installed
from launcher.cli import common
from launcher.cli.numbers import number, numbers, real
from launcher.cli.trace import add_target_choice
from launcher.findings import Exit, Finding, LauncherError
from launcher.machine import packages
from launcher.settings import python_for
from launcher.simulate import engines, report
from launcher.simulate.predict import Case, Prediction
from launcher.simulate.study import FLOOR, ROUTERS, Study, best


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target_choice(parser)
    parser.add_argument(
        "--python", metavar="PATH", default=argparse.SUPPRESS, help="the interpreter that has Dynamo"
    )
    group = parser.add_argument_group("what to simulate")
    group.add_argument(
        "--trace", metavar="FILE", help="a Mooncake trace (default: one made from the target's workload)"
    )
    number(group, "--requests", least=1, most=MOST_REQUESTS, why=IN_MEMORY, help="length of the made trace")
    number(group, "--seed", help="of the made trace (default: the target's)")
    group.add_argument(
        "--concurrency", metavar="N,N", type=numbers, help="default: the target's, half and twice that"
    )
    group.add_argument(
        "--split", metavar="4P4D", action="append", help="only these splits, such as 4P4D or 'agg'"
    )
    group.add_argument(
        "--router", choices=ROUTERS, action="append", help="only these ways of choosing a worker"
    )
    group.add_argument(
        "--all", action="store_true", help="every split with every router at every concurrency"
    )
    group = parser.add_argument_group("how long things take")
    group.add_argument(
        "--timing", metavar="NAME", help="a timing table, or a planner profile (.npz) of your own GPU"
    )
    group.add_argument(
        "--accept-length",
        type=float,
        metavar="TOKENS",
        help=f"tokens that a step of speculative decoding yields (default: {engines.ACCEPT_LENGTH:g}, the page's)",
    )
    group = parser.add_argument_group("what to show")
    group.add_argument(
        "--min-user",
        type=real(0),
        metavar="TOK_S",
        help=f"tok/s that each user should get (default: {FLOOR:g} for traces)",
    )
    group.add_argument("--out", metavar="DIR", help="also write simulate.json and simulate.html here")
    group.add_argument("--json", action="store_true", help="the result as JSON on standard output")


def run(args: argparse.Namespace) -> int:
    """Simulate and show."""
    loaded = common.load(args)
    study = _study(args, loaded)
    _check_python(study, loaded)
    floor = args.min_user if args.min_user is not None else FLOOR if study.workload.cache_hit else 0.0
    folder = None
    if args.out is not None:
        folder = outputs.folder(common.as_path(args.out, "--out"), "--out")
    predictions = _predict(args, study)
    if folder is not None:
        try:
            (folder / "simulate.json").write_text(report.dumps(study, predictions, floor), encoding="utf-8")
            (folder / "simulate.html").write_text(report.html(study, predictions, floor), encoding="utf-8")
        except OSError as error:
            raise outputs.cannot_write(folder, error, "--out") from None
        _tell(f"{folder}: simulate.json, simulate.html")
    if args.json:
        sys.stdout.write(report.dumps(study, predictions, floor))
        return Exit.OK
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(report.table(study, predictions))
    for line in report.verdict(study, predictions, floor):
        console.print(line)
    modelled, missing = report.basis(study)
    console.print("\nmodelled:     " + "\n              ".join(modelled), soft_wrap=True)
    console.print("not modelled: " + "\n              ".join(missing), soft_wrap=True)
    return Exit.OK


def _check_python(study: Study, loaded: common.Loaded) -> None:
    """The simulator is Dynamo's own: what a start says of an interpreter without it holds here too."""
    found = list(installed.no_program(study.python))
    code = Exit.USAGE if found else Exit.CHECK_FAILED
    found = found or list(installed.no_dynamo(study.target, study.python, packages.versions(study.python)))
    if found:
        raise LauncherError([placed(each, loaded.resolved, loaded.given) for each in found], code)


def _study(args: argparse.Namespace, loaded: common.Loaded) -> Study:
    target = loaded.resolved.target
    if target.workload is None:
        raise LauncherError(
            Finding(
                code="workload-missing", what=f"target {target.name} has no workload", where="the target file"
            )
        )
    table, profile = None, None
    if args.timing is not None and args.timing.endswith(".npz"):
        profile = common.as_path(args.timing, "--timing")
        if not profile.is_file():
            raise LauncherError(
                Finding(code="simulate-timing", what=f"{profile} is no file", where="--timing")
            )
    elif args.timing is not None:
        table = engines.known_table(args.timing)
    study = Study(
        target=target,
        workload=target.workload,
        native=loaded.native,
        python=python_for(loaded.settings),
        table=table,
        profile=profile,
        accepted=engines.ACCEPT_LENGTH if args.accept_length is None else args.accept_length,
        requests=args.requests,
        seed=args.seed if args.seed is not None else target.workload.seed,
    )
    _check_accepted(study, given=args.accept_length is not None)
    if args.trace is not None:
        from launcher.bench.limits import context_limit
        from launcher.bench.trace import read

        trace = read.read(
            Path(common.not_empty(args.trace, "--trace")), "--trace", limit=context_limit(target)
        )
        study.given, study.block = trace.rows, trace.block
        for finding in trace.findings:
            _tell(finding.line())
    elif target.workload.trace_block:
        study.block = target.workload.trace_block
    return study


def _check_accepted(study: Study, *, given: bool) -> None:
    """A step yields one token at least, and at most those that it checks. Raises LauncherError for other figures."""
    most = study.drafts + 1
    if not given and (study.drafts == 0 or study.profile is not None):
        return  # it counts for nothing
    # So, and not as a pair of comparisons: NaN is in no range.
    if not 1 <= study.accepted <= most:
        raise LauncherError(
            Finding(
                code="simulate-accepted",
                what=f"a step cannot yield {study.accepted:g} tokens",
                where="--accept-length" if given else "the default",
                why=f"it checks {study.drafts} draft tokens and adds one of its own"
                if study.drafts
                else f"{study.target.name} decodes without drafts, one token a step",
                fix=f"--accept-length from 1 to {most}" if study.drafts else "leave --accept-length out",
            )
        )


def _predict(args: argparse.Namespace, study: Study) -> list[Prediction]:
    """All splits at the target's concurrency; then, of the best and the target's own, what else one would ask."""
    asked = [split for split in study.splits if args.split is None or _named(split.name, args.split)]
    if not asked:
        known = ", ".join(split.name for split in study.splits)
        raise LauncherError(
            Finding(
                code="simulate-split",
                what=f"{study.gpus} GPUs of this target have no split {', '.join(args.split)}",
                where="--split",
                fix=f"known: {known}",
            )
        )
    usual = study.workload.concurrency
    levels = args.concurrency or sorted({max(1, usual // 2), usual, usual * 2})
    for concurrency in levels:
        # Here, not at its turn: the cases before it take minutes.
        study.check(concurrency)
    routers = args.router or list(ROUTERS)
    first = usual if usual in levels else levels[0]
    router = study.router if study.router in routers else routers[0]
    if args.all:
        return _run(
            study, [Case(split, way, level) for level in levels for way in routers for split in asked]
        )
    found = _run(study, [Case(split, router, first) for split in asked])
    top = best(found)
    assert top is not None
    chosen = [split for split in asked if split in (study.own, top.case.split)]
    more = [Case(split, way, first) for split in chosen for way in routers if way != router]
    more += [Case(split, router, level) for split in chosen for level in levels if level != first]
    return found + _run(study, more)


def _named(split: str, asked: Sequence[str]) -> bool:
    return any(split.lower() == name.lower() or split.endswith(" " + name) for name in asked)


def _run(study: Study, cases: list[Case]) -> list[Prediction]:
    if not cases:
        return []
    found = []
    for prediction in study.run(cases, _tell):
        found.append(prediction)
        _tell(
            f"{prediction.case.name}: {prediction.tok_s_gpu:,.0f} tok/s/GPU ({prediction.requests} requests in "
            f"{prediction.duration_s:.0f} simulated s, {prediction.cpu_s:.1f} CPU-s)"
        )
    return found


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
