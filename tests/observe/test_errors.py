"""Errors of the deployment are told, those of its clients counted."""

from __future__ import annotations

import time

from launcher.observe.errors import client_errors, errors
from tests.observe.support import state

ID = "request_id=0c20a543-9bb3-448d-9938-3f7fc7c170e9"
LOUD = "2026-12-01T11:25:37.925870Z ERROR http-request: dynamo_llm::http::service::"
SENT = f"{LOUD}service_v2: http response sent {ID} status="
LINES = [
    f"{SENT}404 latency_ms=0 method=POST",
    f"{LOUD}metrics: request completed {ID} status=error error_type=validation error_detail=invalid",
    f"{SENT}400 latency_ms=1",
    f"{SENT}500 latency_ms=7 method=POST",
    '{"level":"ERROR","message":"http response sent","status":"422"}',
    "2026-12-01T11:25:37.9Z  INFO fine status=404",
]


def test_only_what_is_not_a_clients_mistake_is_listed() -> None:
    front = state("frontend", ready_at=None)
    records = [(time.time(), "stdout", line) for line in LINES]
    assert [error["line"] for error in errors(lambda name, count: records, [front])] == [
        "ERROR dynamo_llm::http::service::service_v2: http response sent status=500 latency_ms=7 method=POST"
    ]
    assert client_errors(lambda name, count: records, [front]) == 3


def test_what_is_older_than_a_minute_does_not_count() -> None:
    records = [(time.time() - 61.0, "stdout", LINES[0]), (time.time() - 1.0, "stdout", LINES[0])]
    assert client_errors(lambda name, count: records, [state("frontend"), state("decode-0")]) == 1
