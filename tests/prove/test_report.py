"""The launch report, as data and as a page."""

from __future__ import annotations

import dataclasses
import json

from launcher.findings import Finding, Severity
from launcher.plan.model import WORKER_ROLES
from launcher.prove import report
from launcher.prove.proof import failed, passed, skipped
from launcher.supervise.events import ProcessState, State
from tests.support.plans import plan


def states(target: str) -> list[ProcessState]:
    phases = {"weights": 18.13, "graphs": 60.0, "ready": 87.5}
    return [
        ProcessState(
            process.name, process.role, 100, State.READY, "ready",
            phases if process.role in WORKER_ROLES else {}, 0, process.ports, 10.0, 97.5, None, healthy=True,
        )
        for process in plan(target).processes
    ]  # fmt: skip


PROOFS = [
    {**passed("completion", "16 tokens").to_json(), "policy": "require"},
    {**failed("fast lane", "decode-0 moves KV by tcp", "use NVLink").to_json(), "policy": "warn"},
    {**skipped("tool call", "not provable here").to_json(), "policy": "skip"},
]


def test_a_page_for_people() -> None:
    made = plan("h200-1gpu-disagg")
    floor = made.claims.kv_floor["prefill"]
    finding = Finding("dynamo-version", "Dynamo 1.3.1 is installed", Severity.WARNING)
    tokens = {"prefill-0": floor + 1, "decode-0": floor // 2}
    data = report.build(
        made, "http://127.0.0.1:8000", states("h200-1gpu-disagg"), PROOFS, tokens, [finding], 97.52
    )
    page = report.text(data)
    assert "h200-1gpu-disagg is ready after 97.5 s" in page
    assert "simulated" not in page
    assert f"{floor + 1:,} (at least {floor:,})" in page
    assert f"{floor // 2:,} (LESS THAN {floor:,})" in page
    assert "weights 18.1  graphs 60" in page
    assert "✓ completion" in page
    assert "✗ fast lane" in page
    assert "– tool call" in page
    assert "! warning[dynamo-version]: Dynamo 1.3.1 is installed" in page
    assert "! fast lane not proven: decode-0 moves KV by tcp; use NVLink" in page
    assert f"! decode-0 has room for {floor // 2:,} tokens of KV" in page
    assert "curl http://127.0.0.1:8000/v1/chat/completions" in page
    # The request to copy is one line, the rest fits the page.
    assert all(len(line) <= report.WIDTH for line in page.split("\n") if "curl" not in line)
    assert json.loads(json.dumps(data))["processes"][2]["kv_tokens"] == floor + 1


def test_a_simulated_run_says_so() -> None:
    made = plan("sim")
    data = report.build(made, "http://x", states("sim"), [], {"prefill-0": 1048576}, [], 4.0)
    page = report.text(data)
    assert "on mocker, simulated: no model is computed" in page
    assert "1,048,576 (simulated)" in page
    assert data["simulated"] is True
    assert data["warnings"] == []


def test_it_stands_what_is_not_known() -> None:
    made = plan("sim")
    bare = [
        dataclasses.replace(state, started_at=None, ready_at=None, phases={}, pid=None)
        for state in states("sim")
    ]
    page = report.text(report.build(made, "http://x", bare, [], {}, [], 0.0))
    assert "frontend" in page


def test_the_request_survives_a_shell() -> None:
    assert report.curl("o'model", "http://x").endswith(
        """'"'"'model","messages":[{"role":"user","content":"Hello"}],"max_tokens":64}'"""
    )


def test_the_rule_follows_the_terminal() -> None:
    made = plan("sim")
    data = report.build(made, "http://x", states("sim"), [], {}, [], 5.0)
    for columns, expected in ((40, 39), (500, report.WIDTH)):
        rules = [line for line in report.text(data, columns).splitlines() if line.startswith("─")]
        assert {len(rule) for rule in rules} == {expected}
