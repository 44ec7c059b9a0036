"""Measured points as one table, beside the published figures with their conditions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.table import Table

from launcher.target.schema import Target

from . import published
from .compare import Change
from .point import Point
from .sweep import dirty


def table(target: Target, points: Sequence[Point]) -> Table:
    """One line a point, then the published one."""
    simulated = any(point.conditions.simulated for point in points)
    title = target.name + (", SIMULATED workers: no figure of a GPU" if simulated else "")
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    shown.add_column("concurrency")
    for heading in (
        "tok/s",
        "tok/s/GPU",
        "tok/s/user",
        "TTFT mean s",
        "p99 s",
        "ITL ms",
        "hits",
        "ok",
        "errors",
        "refused",
    ):
        shown.add_column(heading, justify="right")
    for point in points:
        shown.add_row(
            _name(point),
            number(point.tok_s),
            number(point.tok_s_gpu),
            number(point.tok_s_user, 1),
            number(point.ttft_mean, 3),
            number(point.ttft_p99, 3),
            number(point.itl_mean * 1e3, 2),
            "-" if point.hit is None else f"{point.hit:.1%}",
            str(point.ok),
            str(point.errors),
            str(point.refused),
        )
    known = target.published
    if known is not None:
        shown.add_section()
        shown.add_row(
            f"{known.concurrency} published",
            number(known.tok_s_gpu * published.published_gpus(target)),
            number(known.tok_s_gpu),
            number(known.tok_s_user, 1),
            number(known.ttft_avg_s, 3),
            *["-"] * 6,
            style="dim",
        )
    return shown


def _name(point: Point) -> str:
    about = point.conditions
    words = [str(about.concurrency), about.variant, "(not clean)" if point.clean is False else ""]
    return " ".join(word for word in words if word)


def notes(target: Target, points: Sequence[Point]) -> list[str]:
    """What to know beside the table."""
    lines = []
    for point in points:
        about = point.conditions
        lines.append(f"{about.concurrency}: {about.workload}; {about.gpus} GPUs; {about.client}")
        lines.append(published.check_point(point))
        if point.first_hit is not None and point.first_ideal is not None and point.clean:
            lines.append(
                f"began with empty caches: first requests hit {point.first_hit:.1%}, "
                f"at most {point.first_ideal:.1%} are possible"
            )
        else:
            lines.append(dirty(point))
        if point.refused:
            lines.append(
                f"{point.refused} requests above the context length were refused; they are no errors"
            )
        lines += [f"error, {count} times: {text}" for text, count in point.error_kinds.items()]
    if target.published is not None:
        lines.append(f"published: {target.published.source}; {target.published.conditions}")
        lines.append(published.check_published(target))
    lines.append(published.gpu_note(target))
    return [line for line in dict.fromkeys(lines) if line]


def comparison(changes: Sequence[Change], title: str) -> Table:
    """Two points, figure by figure."""
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in ("", "before [95 %]", "after [95 %]", "difference [95 %]", ""):
        shown.add_column(heading)
    for change in changes:
        share = change.gap.mean / change.before.mean if change.before.mean else math.nan
        shown.add_row(
            change.name, str(change.before), str(change.after), f"{change.gap} ({share:+.1%})", change.verdict
        )
    return shown


def number(value: float, digits: int = 0) -> str:
    """A dash where there is none."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"
