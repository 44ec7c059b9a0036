"""Measure a deployment with AIPerf under the target's traffic, one point or a sweep, beside the published figures.

Without --url the deployment is started here, restarted before each point so that every point begins with empty caches,
and stopped at the end. With --url somebody else's is measured. What is measured stays in --out: run the same command
again to go on after an interruption.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from launcher.bench import aiperf, compare, published, report, sweep, table
from launcher.bench.limits import context_limit
from launcher.bench.point import Point
from launcher.bench.point import load as load_point
from launcher.bench.run import POINT, Plan
from launcher.bench.service import READY_S, Attached, Service, Started
from launcher.bench.sweep import Setup, Step
from launcher.bench.trace.make import IN_MEMORY, MOST_REQUESTS
from launcher.cli import common
from launcher.cli.addresses import http_url
from launcher.cli.numbers import number, numbers, real
from launcher.findings import Exit, Finding, LauncherError
from launcher.settings import Settings

SEED = 42
"""Of the public recipe."""
OWN = ("http_host", "http_port", "admin_host", "admin_port", "log_format", "view", "machine")
"""Settings of the deployment that the benchmark starts which it chooses itself."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    common.add_target_options(parser)
    group = parser.add_argument_group("what to measure")
    group.add_argument("--url", help="a deployment that runs already, such as http://127.0.0.1:8000")
    group.add_argument(
        "--sweep", metavar="N,N", type=numbers, help="these concurrencies (default: the target's)"
    )
    group.add_argument(
        "--vary",
        metavar="PATH=VALUE,…",
        action="append",
        help="a variant of the target, such as workers.prefill.count=2,workers.decode.count=6; repeat for more, "
        "and '' for the target as it is",
    )
    group.add_argument(
        "--trace", metavar="FILE", help="a Mooncake trace (default: one made from the target's workload)"
    )
    number(
        group,
        "--requests",
        least=1,
        most=MOST_REQUESTS,
        why=IN_MEMORY,
        help="requests of each point (default: the target's, or 40 a session of a made trace)",
    )
    number(group, "--seed", help=f"of made trace and synthetic prompts (default: {SEED})")
    number(
        group, "--warmup", most=MOST_REQUESTS, help="warm-up requests, not measured (default: the target's)"
    )
    group = parser.add_argument_group("how")
    group.add_argument("--out", metavar="DIR", help="where everything is kept (default: bench/TARGET-TIME)")
    group.add_argument(
        "--clear-command", metavar="CMD", help="with --url: what empties the KV caches (a restart)"
    )
    group.add_argument(
        "--aiperf", metavar="PATH", help="AIPerf, where it is not beside this interpreter or on PATH"
    )
    group.add_argument("--tokenizer", metavar="NAME", help="default: the target's model")
    number(group, "--client-processes", least=1, help="AIPerf's load generators (default: its own choice)")
    group.add_argument(
        "--ready-timeout", type=real(0), default=READY_S, metavar="S", help="default: %(default)g"
    )
    group = parser.add_argument_group("after")
    group.add_argument(
        "--compare", nargs=2, metavar="DIR", help="two results, figure by figure; measures nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, or compare."""
    if args.compare is not None:
        return _compare(*args.compare)
    loaded = common.load(args)
    name = loaded.resolved.target.name
    if args.url is not None:
        args.url = http_url(args.url, "--url")
    if args.url is not None and args.vary is not None:
        raise _wrong(
            "--vary changes the deployment, and --url gives one that is not ours", "leave one of them out"
        )
    program = aiperf.find(args.aiperf)
    workload = loaded.resolved.target.workload
    if workload is None:
        raise _wrong(f"target {name} has no workload", "--set workload.… or another target")
    steps = [
        Step(concurrency, variant)
        for variant in args.vary or [""]
        for concurrency in args.sweep or [workload.concurrency]
    ]
    if args.url is not None and len(steps) > 1 and args.clear_command is None:
        # Said before the first point is measured, not after.
        raise _wrong(
            "a sweep over somebody else's deployment needs a way to empty its KV caches between points",
            "--clear-command CMD, or leave --url out",
        )
    root = _folder(args, name)
    plans = {
        variant: _plan(args, variant, program) for variant in dict.fromkeys(step.variant for step in steps)
    }
    for step in steps:
        # Here, not at its turn: a deployment would be started first.
        plans[step.variant].check(step.concurrency)
    by = "--out" if args.out is not None else "HF_HOME" if os.environ.get("HF_HOME") else "the default"
    sweep.claim(root, _identity(args, plans[steps[0].variant]), by)
    _tell(f"results in {root}")
    points = sweep.measure(
        root, steps, lambda variant: Setup(plans[variant], _starter(args, variant, root)), _tell
    )
    target = plans[steps[0].variant].target
    files = report.write(root, target, points)
    console = _console()
    console.print(table.table(target, points))
    for line in table.notes(target, points):
        console.print(line, soft_wrap=True)
    console.print(
        f"{root}: {', '.join(path.name for path in files)}; raw artifacts in {', '.join(s.folder for s in steps)}"
    )
    return Exit.CHECK_FAILED if any(not point.ok for point in points) else Exit.OK


def _plan(args: argparse.Namespace, variant: str, program: str) -> Plan:
    target = common.load(_with(args, variant)).resolved.target
    workload = target.workload
    assert workload is not None
    given, block, name = None, workload.trace_block, ""
    if args.trace is not None:
        from launcher.bench.trace import read

        trace = read.read(
            Path(common.not_empty(args.trace, "--trace")), "--trace", limit=context_limit(target)
        )
        given, block, name = trace.rows, trace.block, Path(args.trace).name
        for finding in trace.findings:
            _tell(finding.line())
    note = published.gpu_note(target)
    if note:
        _tell(note)
    return Plan(
        target=target,
        workload=workload,
        program=program,
        given=given,
        given_name=name,
        **({"block": block} if block else {}),
        requests=args.requests,
        seed=args.seed if args.seed is not None else SEED,
        tokenizer=args.tokenizer,
        processes=args.client_processes,
        warmup=args.warmup if args.warmup is not None else workload.warmup_requests,
    )


def _starter(args: argparse.Namespace, variant: str, root: Path) -> Callable[[], Service]:
    def start() -> Service:
        model = common.load(_with(args, variant)).resolved.target.model.name
        if args.url is not None:
            return Attached(args.url, model, _tell, command=args.clear_command, ready_s=args.ready_timeout)
        return Started(_serve_words(_with(args, variant)), model, root, _tell, ready_s=args.ready_timeout)

    return start


def _with(args: argparse.Namespace, variant: str) -> argparse.Namespace:
    """The command line with a variant's values set."""
    changed = argparse.Namespace(**vars(args))
    assignments = [part.strip() for part in variant.split(",") if part.strip()]
    if assignments:
        changed.set = [*getattr(args, "set", []), *assignments]
    return changed


def _serve_words(args: argparse.Namespace) -> list[str]:
    """What of our options `launcher serve` takes too; its ports are chosen here, and its log goes to a file."""
    words = []
    for name in Settings.model_fields:
        value = getattr(args, name, None)
        if value is None or value is False or name in OWN:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += (
                [f"--{name.replace('_', '-')}"]
                if each is True
                else [f"--{name.replace('_', '-')}", str(each)]
            )
    return words


def _identity(args: argparse.Namespace, plan: Plan) -> dict[str, object]:
    """What must be equal for points to stand in one report."""
    digest = ""
    if args.trace is not None:
        digest = hashlib.sha256(Path(args.trace).read_bytes()).hexdigest()[:16]
    return {
        "target": plan.target.model_dump_json(exclude={"network", "deadlines", "pod", "notes"}),
        "url": args.url or "",
        "trace": digest,
        "requests": plan.requests or 0,
        "seed": plan.seed,
        "warmup": plan.warmup,
        "client": aiperf.version(plan.program),
    }


def _folder(args: argparse.Namespace, name: str) -> Path:
    if args.out is not None:
        return common.as_path(args.out, "--out")
    # In a pod the model cache is the volume that stays.
    base = Path(os.environ["HF_HOME"]) if os.environ.get("HF_HOME") else Path.cwd()
    return (base / "bench" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}").absolute()


def _compare(before: str, after: str) -> int:
    console = _console()
    found = compare.pairs(_points(before), _points(after))
    if not found:
        raise _wrong(
            f"{before} and {after} have no point in common", "compare sweeps over the same concurrencies"
        )
    for first, second in found:
        title = (
            f"concurrency {second.conditions.concurrency} {second.conditions.variant}: {before} -> {after}"
        )
        console.print(table.comparison(compare.compare(first, second), title))
        for line in compare.differing(first, second):
            console.print(f"not the same: {line}", soft_wrap=True)
        for name, point in ((before, first), (after, second)):
            if point.clean is not True:
                console.print(f"{name}: {sweep.dirty(point)}", soft_wrap=True)
    return Exit.OK


def _points(folder: str) -> list[Point]:
    root = Path(common.not_empty(folder, "--compare"))
    files = sorted(root.rglob(POINT)) if root.is_dir() else [root]
    try:
        points = [load_point(path) for path in files]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LauncherError(Finding(code="bench-no-result", what=str(error), where="--compare")) from None
    if not points:
        raise LauncherError(Finding(code="bench-no-result", what=f"{root} has no {POINT}", where="--compare"))
    return sorted(points, key=lambda point: (point.conditions.variant, point.conditions.concurrency))


def _wrong(what: str, fix: str) -> LauncherError:
    return LauncherError(Finding(code="command-line", what=what, where="the command line", fix=fix))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
