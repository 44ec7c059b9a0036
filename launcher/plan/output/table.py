"""The plan as text that a person reads: processes with ports and GPUs, then exact commands, then deadlines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from launcher.plan.model import UNREADY, Plan, Process, mask_env


def render(plan: Plan) -> str:
    """The whole page. Secrets are masked."""
    lines = [
        f"{plan.target}: {plan.model} on {plan.engine}{' (simulated)' if plan.simulated else ''}, plan {plan.hash()}",
        f"API http://{plan.http_host}:{plan.http_port}   admin http://{plan.admin_host}:{plan.admin_port}",
        f"run folder {plan.run_dir} (0700, removed at exit; a start has a number for .run)",
    ]
    lines += [f"note: {note}" for note in plan.notes]
    rows = [
        (
            process.name,
            process.role.value,
            ",".join(process.gpus) or "-",
            " ".join(f"{purpose}={port}" for purpose, port in process.ports.items()),
        )
        for process in plan.processes
    ]
    lines += ["", *columns(("process", "role", "gpu", "ports"), rows)]
    for process in plan.processes:
        lines += ["", *_command(process)]
    shown: set[str] = set()
    for process in plan.processes:
        for path, text in process.files.items():
            if path not in shown:
                shown.add(path)
                lines += ["", f"file {path}", *(f"  {line}" for line in text.rstrip().splitlines())]
    lines += ["", *_deadlines(plan)]
    return "\n".join(lines) + "\n"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of left-aligned columns, two spaces apart."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


def _command(process: Process) -> Iterator[str]:
    yield f"{process.name}"
    for name, value in mask_env(process.env).items():
        yield f"  {name}={shlex.quote(value)}"
    line = "  $"
    for word in process.argv:
        quoted = shlex.quote(word)
        if word.startswith("--"):
            yield line + " \\"
            line = "      " + quoted
        else:
            line += " " + quoted
    yield line


def _deadlines(plan: Plan) -> Iterator[str]:
    deadlines = plan.deadlines
    yield f"ready within {deadlines.start_s:g} s of the start, else exit 4"
    yield f"stop: at SIGTERM /readyz turns 503, {deadlines.pause_s:g} s pause, then"
    at = deadlines.pause_s
    for role, seconds in deadlines.drain_s.items():
        yield f"  {at:6.1f} s  SIGTERM to {role}, at most {seconds:g} s"
        at += seconds
    yield f"  {at:6.1f} s  whatever is left is killed; the pod's grace period is {deadlines.grace_s:g} s"
    yield f"            a process that has not been ready yet: {UNREADY.total_s:g} s after its SIGTERM"
