"""What the predictions say: a table for the terminal, a page with plots, and plainly what they leave out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from rich import box
from rich.table import Table

from launcher.bench import plot
from launcher.bench.pareto import front
from launcher.target.schema import Published

from . import engines
from .predict import Prediction
from .study import Study, best

BASIS = "PREDICTION by Dynamo's offline simulator, in simulated time; nothing was measured"

HEADINGS = (
    "split",
    "router",
    "concurrency",
    "tok/s/GPU",
    "tok/s/user",
    "TTFT mean s",
    "TTFT p50 s",
    "TTFT p99 s",
    "ITL ms",
    "hits",
)


def table(study: Study, predictions: Sequence[Prediction]) -> Table:
    """One line a case, the best of the target's concurrency marked."""
    shown = Table(box=box.SIMPLE_HEAD, title=f"{study.target.name}: {BASIS}", title_justify="left")
    shown.add_column("split")
    shown.add_column("router")
    for heading in ("conc.", "tok/s/GPU", "tok/s/user", "TTFT mean s", "p99 s", "ITL ms", "hits", "req/s"):
        shown.add_column(heading, justify="right")
    top = best([each for each in predictions if each.case.concurrency == level(study, predictions)])
    for each in predictions:
        own = " (target)" if each.case.split == study.own else ""
        shown.add_row(
            each.case.split.name + own,
            each.case.router,
            str(each.case.concurrency),
            f"{each.tok_s_gpu:,.0f}",
            f"{each.tok_s_user:.1f}",
            f"{each.ttft_mean_s:.2f}",
            f"{each.ttft_p99_s:.2f}",
            f"{each.itl_mean_ms:.1f}",
            f"{each.hit:.1%}",
            f"{each.requests_s:.2f}",
            style="bold" if each is top else "",
        )
    return shown


def level(study: Study, predictions: Sequence[Prediction]) -> int:
    """The concurrency at which splits are compared: the target's, or the first that was simulated."""
    levels = [each.case.concurrency for each in predictions]
    usual = study.workload.concurrency
    return usual if usual in levels or not levels else levels[0]


def verdict(study: Study, predictions: Sequence[Prediction], floor: float) -> list[str]:
    """The best splits by name, and how the prediction of the target's own compares with what was published."""
    at = [each for each in predictions if each.case.concurrency == level(study, predictions)]
    lines = []
    top = best(at)
    if top is not None:
        lines.append(f"best split at concurrency {top.case.concurrency}: {_phrase(top)}")
    fit = best(at, floor)
    if floor and fit is None:
        lines.append(
            f"no split keeps {floor:g} tok/s for every user at concurrency {level(study, predictions)}"
        )
    elif floor and fit is not top and fit is not None:
        lines.append(f"best that keeps {floor:g} tok/s/user: {_phrase(fit)}")
    anywhere = best(predictions, floor)
    if anywhere is not None and anywhere not in (top, fit):
        lines.append(f"best over all concurrencies: {_phrase(anywhere)}")
    own = next(
        (each for each in at if each.case.split == study.own and each.case.router == study.router), None
    )
    if own is not None and study.target.published is not None:
        lines.append(against(own, study.target.published))
    return lines


def against(own: Prediction, published: Published) -> str:
    """The target's own split beside the published figure."""
    return (
        f"published for {own.case.split.name} at {published.concurrency}: {published.tok_s_gpu:,.0f} tok/s/GPU, "
        f"{published.tok_s_user:g} tok/s/user, TTFT {published.ttft_avg_s:g} s; predicted {own.tok_s_gpu:,.0f} "
        f"({own.tok_s_gpu / published.tok_s_gpu:.2f}x), {own.tok_s_user:.1f} "
        f"({own.tok_s_user / published.tok_s_user:.2f}x), {own.ttft_mean_s:.2f} s "
        f"({own.ttft_mean_s / published.ttft_avg_s:.2f}x)"
    )


def _phrase(each: Prediction) -> str:
    return (
        f"{each.case.split.name} with {each.case.router} at {each.case.concurrency}: {each.tok_s_gpu:,.0f} tok/s/GPU, "
        f"{each.tok_s_user:.1f} tok/s/user, TTFT {each.ttft_mean_s:.2f} s"
    )


def basis(study: Study) -> tuple[list[str], list[str]]:
    """What is modelled, and what is not."""
    modelled = [
        "the router with its KV index, queueing, continuous batching, chunked prefill, prefix caches with eviction, "
        f"KV transfer at {engines.TRANSFER_GB_S:g} GB/s",
        *study.tables,
    ]
    missing = [
        "the CPU: tokenizing, HTTP, Python in the engine's loop",
        "NIXL's setup and contention, NVLink shared by several transfers",
        "the router without KV events (Dynamo's simulator ignores that setting; see docs/evidence/router.md)",
        "prefill cost by each request's own cached prefix: the mean prefix stands for all",
    ]
    if study.drafts and study.profile is None:
        modelled.append(
            f"speculative decoding: a step checks {study.drafts + 1} tokens and keeps {study.accepted:g} of them"
        )
        missing.append("the draft model's own passes (its acceptance is assumed, not predicted)")
    if study.offloads:
        modelled.append("KV offload to host memory, aggregated only (from ai-dynamo 1.6 on)")
    if study.dropped:
        missing.append(
            f"{study.dropped} requests above the context length, which an engine refuses: left out"
        )
    return modelled, missing


def to_json(study: Study, predictions: Sequence[Prediction], floor: float) -> dict[str, Any]:
    """Everything, for scripts."""
    modelled, missing = basis(study)
    published = study.target.published
    return {
        "basis": BASIS,
        "simulated": True,
        "target": study.target.name,
        "gpus": study.gpus,
        "traces": {str(concurrency): figures.to_json() for concurrency, figures in study.traces.items()},
        "modelled": modelled,
        "not_modelled": missing,
        "floor_tok_s_user": floor,
        "verdict": verdict(study, predictions, floor),
        "published": published.model_dump() if published else None,
        "predictions": [each.to_json() for each in predictions],
    }


def html(study: Study, predictions: Sequence[Prediction], floor: float) -> str:
    """One page with everything in it: no script, no other file."""
    modelled, missing = basis(study)
    concurrency = level(study, predictions)
    at = [
        each
        for each in predictions
        if each.case.concurrency == concurrency and each.case.router == study.router
    ]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(study.target.name)}: simulated</title>",
        "<meta name=color-scheme content='light dark'>",
        plot.STYLE,
        "<style>body{font:15px system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;font-size:13px}td,th{padding:.2rem .7rem;text-align:right}"
        "td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}</style>",
        f"<h1>{escape(study.target.name)}</h1><p><strong>{BASIS}.</strong></p>",
        "".join(f"<p>{escape(line)}</p>" for line in verdict(study, predictions, floor)),
        plot.chart(
            f"Throughput against interactivity, concurrency {concurrency}",
            "tok/s/user",
            "tok/s/GPU",
            _trade(study, at),
        ),
        plot.chart("Throughput by split", "prefill workers", "tok/s/GPU", _by_split(at, "tok_s_gpu")),
        plot.chart(
            "Mean time to first token by split", "prefill workers", "seconds", _by_split(at, "ttft_mean_s")
        ),
        _rows(study, predictions),
        "<h2>Modelled</h2><ul>" + "".join(f"<li>{escape(line)}</li>" for line in modelled) + "</ul>",
        "<h2>Not modelled</h2><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in missing)
        + "</ul></html>",
    ]
    return "\n".join(parts) + "\n"


def _trade(study: Study, at: Sequence[Prediction]) -> list[plot.Series]:
    points = [plot.Point(each.tok_s_user, each.tok_s_gpu, _phrase(each), each.case.split.name) for each in at]
    line = front(at, lambda each: each.tok_s_user, lambda each: each.tok_s_gpu)
    shown = [
        plot.Series("simulated split", points, line=False),
        plot.Series(
            "Pareto line",
            [plot.Point(each.tok_s_user, each.tok_s_gpu) for each in line],
            dashed=True,
            marks=False,
        ),
    ]
    published = study.target.published
    if published is not None:
        text = f"published: {published.conditions}"
        mark = plot.Point(published.tok_s_user, published.tok_s_gpu, text, study.own.name)
        shown.append(plot.Series("published", [mark], line=False, hollow=True))
    return shown


def _by_split(at: Sequence[Prediction], figure: str) -> list[plot.Series]:
    apart = [each for each in at if each.case.split.prefill]
    series = [
        plot.Series(
            "prefill/decode",
            [plot.Point(each.case.split.prefill, getattr(each, figure), _phrase(each)) for each in apart],
        )
    ]
    together = [each for each in at if each.case.split.aggregated]
    if together and apart:
        ends = (apart[0].case.split.prefill, apart[-1].case.split.prefill)
        value = getattr(together[0], figure)
        points = [plot.Point(end, value, _phrase(together[0])) for end in ends]
        series.append(plot.Series("aggregated", points, dashed=True))
    return series


def _rows(study: Study, predictions: Sequence[Prediction]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{cell}</th>" for cell in HEADINGS) + "</tr>"]
    for each in predictions:
        cells = [
            each.case.split.name + (" (target)" if each.case.split == study.own else ""),
            each.case.router,
            str(each.case.concurrency),
            f"{each.tok_s_gpu:,.0f}",
            f"{each.tok_s_user:.1f}",
            f"{each.ttft_mean_s:.2f}",
            f"{each.ttft_p50_s:.2f}",
            f"{each.ttft_p99_s:.2f}",
            f"{each.itl_mean_ms:.1f}",
            f"{each.hit:.1%}",
        ]
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return "".join([*lines, "</table>"])


def dumps(study: Study, predictions: Sequence[Prediction], floor: float) -> str:
    """The JSON file's content."""
    return json.dumps(to_json(study, predictions, floor), indent=2, default=str) + "\n"
