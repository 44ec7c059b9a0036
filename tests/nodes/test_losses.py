"""What is lost when a node, a cable or etcd is: each under load, on nodes of their own. Takes minutes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import nodes
from tests.support.load import Load
from tests.support.nodes import Etcd, Net, launcher
from tests.support.runs import Run

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]
SILENT = ("--set", "frontend.env.DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS=10")
"""A stream that stands for ten seconds moves to another worker; the default is two minutes."""
Deployment = tuple[Net, Etcd, Run, Run, Run]


@pytest.fixture
def deployment(state: Path) -> Iterator[Deployment]:
    """`a`: frontend and prefill, `b` and `c`: two decode workers each; started with the frontend last."""
    if reason := nodes.missing():
        pytest.skip(reason)
    with nodes.cluster(state, "a", "b", "c") as (net, etcd), contextlib.ExitStack() as stack:

        def start(node: str, roles: str, *options: str) -> Run:
            options = ("--roles", roles, "--etcd-lease-s", "10", *options)
            return stack.enter_context(launcher(net, etcd, node, "sim", *options, state=state))

        c, b, a = start("c", "decode"), start("b", "decode"), start("a", "frontend,prefill", *SILENT)
        yield net, etcd, a.ready(), b.ready(), c.ready()


def whole(run: Run, backends: int, within_s: float) -> float:
    """Seconds until discovery has so many decode workers."""
    began = time.monotonic()
    while run.status()["discovery"]["instances"].get("backend") != backends:
        assert time.monotonic() - began < within_s, run.status()["discovery"]
        time.sleep(0.2)
    return time.monotonic() - began


def test_a_node_without_power_costs_no_request(deployment: Deployment) -> None:
    net, _, a, *_ = deployment
    with Load([a.url], a.model, concurrency=8) as load:
        time.sleep(3)
        assert net.kill("c") > 3
        assert whole(a, 2, 20) < 15
        time.sleep(12)
        net.mend("c")
    assert load.failures() == []
    assert [each["node"] for each in a.status()["discovery"]["nodes"]] == ["b"]


def test_a_cable_that_comes_back(deployment: Deployment) -> None:
    net, _, a, _, c = deployment
    with Load([a.url], a.model, concurrency=8) as load:
        time.sleep(2)
        net.cut("c")
        whole(a, 2, 20)
        time.sleep(8)
        net.mend("c")
        # Its workers had given up (Dynamo ends a process that lost its lease) and were held until etcd answered.
        whole(a, 4, 60)
        c.ready(30)
    assert load.failures() == []
    assert "etcd answers again" in c.log
    assert max(process["restarts"] for process in c.status()["processes"]) == 1


def test_an_etcd_that_is_away_for_less_than_a_lease(deployment: Deployment) -> None:
    _, etcd, a, b, c = deployment
    with Load([a.url], a.model, concurrency=8) as load:
        time.sleep(2)
        etcd.stop()
        time.sleep(5)
        assert a.status()["discovery"]["reachable"] is False
        assert a.admin("/readyz")[0] == 200
        etcd.start()
        time.sleep(3)
        assert whole(a, 4, 5) < 5
    assert load.failures() == []
    for run in (a, b, c):
        assert "etcd answers again" in run.log
        assert all(process["restarts"] == 0 for process in run.status()["processes"])


def test_an_etcd_that_is_away_for_longer_comes_back_to_a_whole_deployment(deployment: Deployment) -> None:
    _, etcd, a, b, c = deployment
    etcd.stop()
    time.sleep(22)
    etcd.start()
    for run in (a, b, c):
        run.ready(60)
    assert a.chat("Hello")["usage"]["completion_tokens"] == 16
    assert all(process["restarts"] <= 1 for run in (a, b, c) for process in run.status()["processes"])
