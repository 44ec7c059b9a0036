"""Targets as they ship, simulated, over several nodes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.support.load import Load
from tests.support.nodes import Etcd, Net, launcher
from tests.support.runs import Run

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]
Cluster = tuple[Net, Etcd]


def test_one_and_four_gpus_on_two_trays(cluster: Cluster, place: Path) -> None:
    """The GB200 target: prefill with the frontend on one tray, decode on the other, decode first."""
    net, etcd = cluster

    def part(node: str, roles: str) -> Run:
        return launcher(
            net, etcd, node, "gb200-trtllm-disagg", "--engine", "mocker", "--roles", roles, state=place / "gb"
        )

    with part("b", "decode") as decode, part("a", "frontend,prefill") as first:
        decode.ready()
        first.ready()
        assert first.chat("Hello")["usage"]["completion_tokens"] == 16
        assert [state["name"] for state in decode.status()["processes"]] == ["events", "decode-0"]
        assert first.status()["discovery"]["nodes"][0]["roles"] == ["decode"]
        assert first.stop() == 0
        assert decode.stop() == 0


def test_an_aggregated_target_on_n_nodes(cluster: Cluster, place: Path) -> None:
    """The same line on each: every node has a frontend, and each routes to the workers of all."""
    net, etcd = cluster

    def node(name: str) -> Run:
        options = ("--engine", "mocker", "--set", "workers.aggregated.count=1")
        return launcher(net, etcd, name, "h200-agg", *options, state=place / "agg")

    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(node(name)) for name in ("a", "b")]
        for run in runs:
            run.ready()
        with Load([run.url for run in runs], runs[0].model, concurrency=8) as load:
            time.sleep(1)
            third = stack.enter_context(node("c")).ready()
            ids = {
                int(key.rpartition("/")[2], 16)
                for key in etcd.keys("v1/instances/h200-agg/backend/generate/")
            }
            assert len(ids) == 3
            until = time.monotonic() + 20
            for run in (*runs, third):
                used: set[int] = set()
                while used != ids:
                    assert time.monotonic() < until, (used, ids)
                    answer = run.chat(f"Hello {time.monotonic()}", nvext={"extra_fields": ["worker_id"]})
                    used |= {
                        value
                        for key, value in answer["nvext"]["worker_id"].items()
                        if key.endswith("worker_id")
                    }
            # One leaves, the others' requests do not notice.
            assert third.stop() == 0
            time.sleep(2)
        assert load.failures() == []
        assert len(load.requests) > 20
        assert {each["node"] for each in runs[0].status()["discovery"]["nodes"]} == {"b"}
