"""The launch report: on one page what runs, how it started, what was proven, and how to try it. Pure."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.findings import Finding, Severity
from launcher.plan.model import WORKER_ROLES, Plan
from launcher.prove.proof import Outcome
from launcher.supervise.events import ProcessState

WIDTH = 100
MARKS = {Outcome.PASSED: "✓", Outcome.FAILED: "✗", Outcome.SKIPPED: "–"}
FLOOR_WHY = "less than the weights leave room for: is the hybrid KV cache manager on, is the GPU shared?"


def build(
    plan: Plan,
    url: str,
    states: Sequence[ProcessState],
    proofs: Sequence[Mapping[str, Any]],
    kv_tokens: Mapping[str, int],
    findings: Sequence[Finding],
    ready_s: float,
) -> dict[str, Any]:
    """The report as data. `kv_tokens`: worker to the tokens of KV that it has room for, as it says."""
    gpus = {process.name: list(process.gpus) for process in plan.processes}
    processes = []
    short = []
    for state in states:
        ready = state.ready_at - state.started_at if state.ready_at and state.started_at else None
        entry: dict[str, Any] = {
            "name": state.name,
            "role": state.role.value,
            "pid": state.pid,
            "gpus": gpus.get(state.name, []),
            "ready_s": round(ready, 1) if ready is not None else None,
            "phases": {name: round(seconds, 1) for name, seconds in state.phases.items() if name != "ready"},
        }
        if state.role in WORKER_ROLES:
            tokens, floor = kv_tokens.get(state.name), plan.claims.kv_floor.get(state.role.value)
            entry |= {"kv_tokens": tokens, "kv_floor": floor, "kv_simulated": plan.simulated}
            if tokens is not None and floor is not None and tokens < floor:
                short.append(
                    f"{state.name} has room for {tokens:,} tokens of KV, at least {floor:,} were expected"
                )
        processes.append(entry)
    warnings = [finding.line() for finding in findings if finding.severity is Severity.WARNING]
    warnings += [f"{text}: {FLOOR_WHY}" for text in short]
    warnings += [
        f"{proof['name']} not proven: {proof['text']}" + (f"; {proof['fix']}" if proof.get("fix") else "")
        for proof in proofs
        if proof["outcome"] == Outcome.FAILED
    ]
    return {
        "target": plan.target,
        "model": plan.model,
        "engine": plan.engine,
        "simulated": plan.simulated,
        "plan": plan.hash(),
        "ready_s": round(ready_s, 1),
        "url": url,
        "admin": f"http://{plan.admin_host}:{plan.admin_port}",
        "processes": processes,
        "proofs": [dict(proof) for proof in proofs],
        "warnings": warnings,
        "curl": curl(plan.model, url) if plan.join.has("frontend") else "",
    }


def curl(model: str, url: str) -> str:
    """A request to try."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(text)}"


def text(report: Mapping[str, Any], columns: int = WIDTH + 1) -> str:
    """The report as a page for people; `columns`: of the terminal, whose lines the rule must not wrap."""
    width = max(1, min(WIDTH, columns - 1))
    rule = "─" * width
    simulated = ", simulated: no model is computed" if report["simulated"] else ""
    lines = [
        rule,
        f" {report['target']} is ready after {report['ready_s']:.1f} s",
        f" {report['model']} on {report['engine']}{simulated}",
        rule,
        *_table(report),
        "",
        " proven"
        if report["curl"]
        else " a part of the deployment: what holds is proven where the frontend is",
    ]
    for proof in report["proofs"]:
        mark = MARKS[Outcome(proof["outcome"])]
        taken = f" ({proof['seconds']:.1f} s)" if mark != MARKS[Outcome.SKIPPED] else ""
        lines += _wrapped(f"   {mark} {proof['name']:<13} ", proof["text"] + taken, width)
    if report["warnings"]:
        lines += ["", " warnings"]
        for warning in report["warnings"]:
            lines += _wrapped("   ! ", warning, width)
    lines += ["", " try it", *([f"   {report['curl']}"] if report["curl"] else [])]
    lines += [f"   curl {report['admin']}/status", rule]
    return "\n".join(lines)


def _table(report: Mapping[str, Any]) -> list[str]:
    """What runs where: one row for each process, columns as wide as they need."""
    rows = [("process", "gpus", "ready", "KV tokens", "phases, seconds from start")]
    for entry in report["processes"]:
        phases = "  ".join(f"{name} {seconds:g}" for name, seconds in entry["phases"].items())
        ready = f"{entry['ready_s']:.1f} s" if entry["ready_s"] is not None else ""
        rows.append((entry["name"], ",".join(entry["gpus"]), ready, _kv(entry), phases))
    used = [column for column in range(len(rows[0])) if any(row[column] for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in used}
    return [" " + "  ".join(f"{row[column]:<{widths[column]}}" for column in used).rstrip() for row in rows]


def _kv(entry: Mapping[str, Any]) -> str:
    tokens, floor = entry.get("kv_tokens"), entry.get("kv_floor")
    if tokens is None:
        return ""
    if entry.get("kv_simulated"):
        return f"{tokens:,} (simulated)"
    if floor is None:
        return f"{tokens:,}"
    return f"{tokens:,} ({'at least' if tokens >= floor else 'LESS THAN'} {floor:,})"


def _wrapped(first: str, body: str, width: int) -> list[str]:
    return textwrap.wrap(
        body,
        max(width, len(first) + 20),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
    ) or [first]
