"""The other Dynamo releases past one node: several nodes in any order, and what is lost when something is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes.test_losses import whole
from tests.plan.test_real_parsers import interpreter
from tests.support import nodes
from tests.support.load import Load
from tests.support.nodes import Etcd, Net, launcher
from tests.support.runs import Run

pytestmark = [pytest.mark.e2e, pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(300)]
Deployment = tuple[Net, Etcd, Run, Run, Run]
BACKEND = "v1/instances/sim/backend/generate/"


@pytest.fixture(params=["1.3.1", "1.4.2"])
def deployment(request: pytest.FixtureRequest, state: Path) -> Iterator[Deployment]:
    """`a`: frontend and prefill, started first; `b` and `c`: two decode workers each."""
    if reason := nodes.missing():
        pytest.skip(reason)
    python = ("--python", str(interpreter(request.param)))
    with nodes.cluster(state, "a", "b", "c") as (net, etcd), contextlib.ExitStack() as stack:

        def start(node: str, roles: str) -> Run:
            return stack.enter_context(
                launcher(net, etcd, node, "sim", "--roles", roles, *python, state=state)
            )

        a, b, c = start("a", "frontend,prefill"), start("b", "decode"), start("c", "decode")
        yield net, etcd, a.ready(), b.ready(), c.ready()


def test_parts_find_each_other_and_survive_what_they_can(deployment: Deployment) -> None:
    net, etcd, a, *_ = deployment
    assert a.chat("Hello")["usage"]["completion_tokens"] == 16
    for node in ("a", "b", "c"):
        # The frontend chooses where answers come in: on the one address that leads out.
        assert {address for address, _ in net.listeners(node)} <= {net.nodes[node], "127.0.0.1"}
    with Load([a.url], a.model, concurrency=8) as load:
        time.sleep(1)
        etcd.stop()
        time.sleep(2)
        etcd.start()
        time.sleep(4)
        # Shorter than what a router takes for a loss, and than a lease.
        net.cut("c")
        time.sleep(4)
        net.mend("c")
        time.sleep(6)
    assert load.failures() == []
    assert whole(a, 4, 10) < 10


def test_a_node_that_is_killed_whole_costs_seconds_not_a_lease(deployment: Deployment) -> None:
    net, etcd, a, *_ = deployment
    with Load([a.url], a.model, concurrency=8) as load:
        time.sleep(2)
        net.kill("c", cut=False)
        assert whole(a, 2, 10) < 8
        at = load.now
        time.sleep(6)
    # What these releases cannot do: until it is withdrawn, requests go to the dead, which look idle.
    assert all(each.began < at + 1 for each in load.failures()), load.summary(at)
    assert len([each for each in load.requests if each.began > at + 1]) > 10
    assert len(etcd.keys(BACKEND)) == 2
