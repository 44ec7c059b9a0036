"""Hold the simulator's predictions against the page's published ranking, and write docs/evidence/simulation.md.

    python scripts/bench_simulate.py [--python INTERPRETER] [--turns N]

Ten minutes of one core. Every vLLM target of the page at its own concurrency with every split of its GPUs; and on
another made trace, because how much the sessions share decides what the prefill workers' caches hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from launcher.simulate import report, timing
from launcher.simulate.predict import Case, Prediction
from launcher.simulate.study import Study, best
from launcher.target.resolve import resolve
from launcher.target.schema import Published

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "evidence"
TARGETS = ("b200-agg", "b200-disagg", "h200-agg", "h200-disagg")
TABLES = {"b200-agg": "b200-vllm-tp1", "b200-disagg": "b200-vllm-tp1"}
"""The other timing table that one could choose, for the sensitivity."""


def study(name: str, python: str, turns: int, shared: int | None = None, table: str | None = None) -> Study:
    """A target on the simulator."""
    target = resolve(name).target
    assert target.workload is not None
    return Study(
        target=target,
        workload=target.workload,
        native=target.engine.kind,
        python=python,
        requests=turns * target.workload.concurrency,
        shared=shared,
        table=table,
    )


def simulate(subject: Study, *, every: bool) -> list[Prediction]:
    """Every split, or the target's own alone, with its own router at its own concurrency."""
    splits = subject.splits if every else [subject.own]
    cases = [Case(split, subject.router, subject.workload.concurrency) for split in splits]
    found = []
    for prediction in subject.run(cases, lambda line: print(line, file=sys.stderr)):
        found.append(prediction)
        print(f"  {prediction.case.name}: {prediction.tok_s_gpu:.0f} tok/s/GPU", file=sys.stderr, flush=True)
    return found


def own(subject: Study, found: list[Prediction]) -> Prediction:
    """The target's own split."""
    return next(each for each in found if each.case.split == subject.own)


def published(subject: Study) -> Published:
    """What the page says of the target."""
    assert subject.target.published is not None
    return subject.target.published


def row(subject: Study, each: Prediction) -> str:
    """One target of the page, predicted beside published."""
    page = published(subject)
    return (
        f"| {subject.target.name} ({each.case.split.name}, {each.case.concurrency}) | {page.tok_s_gpu:,.0f} | "
        f"{each.tok_s_gpu:,.0f} ({each.tok_s_gpu / page.tok_s_gpu:.2f}x) | {page.tok_s_user:g} | "
        f"{each.tok_s_user:.0f} | {page.ttft_avg_s:g} | {each.ttft_mean_s:.1f} | {each.hit:.1%} |"
    )


def needed(subject: Study) -> str:
    """What the page's throughput asks of the GPUs that prefill, beside what the kernels of the table give."""
    page, workload = published(subject), subject.workload
    split, shape = subject.own, next(iter(subject.traces.values()))
    workers = split.prefill or split.aggregated
    new = shape.isl_mean * (1 - shape.hit)
    rate = page.tok_s_gpu * subject.gpus / workload.osl * new / workers
    table = timing.load(next(iter(subject.engines.values())).table)
    took = table.prefill(new, shape.isl_mean - new) / 1e3
    fits = 1 - (1 - shape.hit) * (new / took) / rate
    return (
        f"- {subject.target.name}: {rate:,.0f} new tokens/s of each of {workers} prefilling GPUs at "
        f"{shape.hit:.0%} hits; the kernels measured by aiconfigurator give {new / took:,.0f}"
        + (f", which would do at {fits:.1%} hits" if fits > shape.hit else "")
        + ("" if split.prefill else " if the GPU did nothing else")
    )


def ranking(pairs: list[tuple[Study, Prediction]]) -> list[str]:
    """The order of the four on the page and in the prediction, and each pair told right or wrong."""
    page = sorted(pairs, key=lambda pair: -published(pair[0]).tok_s_gpu)
    guess = sorted(pairs, key=lambda pair: -pair[1].tok_s_gpu)
    right = total = 0
    wrong = []
    for index, (first, ours) in enumerate(page):
        for second, theirs in page[index + 1 :]:
            total += 1
            if ours.tok_s_gpu > theirs.tok_s_gpu:
                right += 1
            else:
                wrong.append(f"{first.target.name} over {second.target.name}")
    return [
        f"- page: {' > '.join(subject.target.name for subject, _ in page)}",
        f"- simulator: {' > '.join(subject.target.name for subject, _ in guess)}",
        f"- {right} of {total} pairs in the page's order" + (f"; wrong: {', '.join(wrong)}" if wrong else ""),
    ]


def section(title: str, runs: list[tuple[Study, list[Prediction]]]) -> list[str]:
    """One trace: the four targets, the ranking, the splits."""
    pairs = [(subject, own(subject, found)) for subject, found in runs]
    subject = runs[0][0]
    shape = next(iter(subject.traces.values()))
    lines = [f"## {title}", "", f"Trace of {subject.target.name}:", "", "```", shape.text(), "```", ""]
    lines += [
        "| target | tok/s/GPU page | simulated | tok/s/user page | simulated | TTFT s page | simulated | hits |",
        "|---|---|---|---|---|---|---|---|",
        *(row(subject, each) for subject, each in pairs),
        "",
        *ranking(pairs),
        "",
        "What the page's throughput asks of prefill:",
        "",
        *(needed(subject) for subject, _ in pairs),
        "",
        "Every split, tok/s/GPU / tok/s/user / mean TTFT s:",
        "",
    ]
    names = list(dict.fromkeys(each.case.split.name for _, found in runs for each in found))
    lines += ["| | " + " | ".join(names) + " | best |", "|---" * (len(names) + 2) + "|"]
    for subject, found in runs:
        by = {each.case.split.name: each for each in found}
        cells = [
            f"{by[name].tok_s_gpu:,.0f} / {by[name].tok_s_user:.0f} / {by[name].ttft_mean_s:.1f}"
            if name in by
            else "-"
            for name in names
        ]
        top = best(found)
        assert top is not None
        lines.append(f"| {subject.target.name} | " + " | ".join(cells) + f" | {top.case.split.name} |")
    return [*lines, ""]


def main() -> None:
    """Simulate, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--turns", type=int, default=8, help="requests for each concurrent session")
    args = parser.parse_args()
    began = time.time()
    sections, raw = [], {}
    # With little in common, sessions need more turns to grow to the mean length.
    longer = 24
    variants: list[tuple[str, int | None, dict[str, str]]] = [
        ("Sessions share five eighths of the mean input (the launcher's default)", None, {}),
        ("Sessions share an eighth of it: the targets' own splits", 8192, {}),
        ("The default trace, vLLM's own measured MoE kernels on B200", None, TABLES),
    ]
    for title, shared, tables in variants:
        runs = []
        for name in TARGETS:
            if tables and name not in tables:
                continue
            print(f"{name}: {title}", file=sys.stderr)
            turns = args.turns if shared is None else max(longer, args.turns)
            subject = study(name, args.python, turns, shared, tables.get(name))
            runs.append((subject, simulate(subject, every=shared is None)))
        sections += section(title, runs)
        raw[title] = [json.loads(report.dumps(subject, found, 0.0)) for subject, found in runs]
        modelled, missing = report.basis(runs[0][0])
    head = (Path(__file__).parent / "bench_simulate_head.md").read_text(encoding="utf-8")
    text = [head.rstrip(), "", *sections, "## Modelled, and not", ""]
    text += [f"- modelled: {line}" for line in modelled] + [f"- not modelled: {line}" for line in missing]
    tail = (Path(__file__).parent / "bench_simulate_tail.md").read_text(encoding="utf-8")
    text += ["", tail.rstrip()]
    text += ["", f"Made by `scripts/bench_simulate.py` in {(time.time() - began) / 60:.0f} minutes.", ""]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "simulation.md").write_text("\n".join(text), encoding="utf-8")
    (OUT / "simulation.json").write_text(
        json.dumps(raw, separators=(",", ":"), default=str) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
