"""The client against the real etcd: leases, passwords; and who is there already."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.checks import neighbours as rules
from launcher.checks.base import run_checks
from launcher.discovery.etcd import Etcd as Client
from launcher.discovery.etcd import EtcdError
from launcher.findings import Finding
from tests.checks.subjects import machine_for, resolved
from tests.support import nodes
from tests.support.nodes import Etcd, Net
from tests.support.plans import plan
from tests.support.runs import Run

pytestmark = pytest.mark.e2e
Cluster = tuple[Net, Etcd]


async def round_trip(client: Client) -> None:
    """Everything that a launcher does with etcd."""
    try:
        lease = await client.grant(5)
        await client.put("x/one", b'{"a": 1}', lease)
        await client.put("x/two", b"no json", lease)
        found = {pair.key: pair for pair in await client.range("x/")}
        assert found["x/one"].json() == {"a": 1}
        assert found["x/two"].json() == {}
        assert {pair.lease for pair in found.values()} == {lease}
        assert await client.keep_alive(lease)
        assert await client.revoke(lease)
        assert await client.range("x/") == []
        assert not await client.keep_alive(lease)
        assert not await client.revoke(lease)
    finally:
        await client.close()


def test_keys_go_with_their_lease(cluster: Cluster) -> None:
    _, etcd = cluster
    asyncio.run(round_trip(Client([etcd.url], {})))


def test_an_endpoint_that_answers_is_enough(cluster: Cluster) -> None:
    net, etcd = cluster
    asyncio.run(round_trip(Client([f"http://{net.nodes['a']}:1", etcd.url], {})))


def test_nobody_answers(cluster: Cluster) -> None:
    net, _ = cluster

    async def ask() -> None:
        client = Client([f"http://{net.nodes['a']}:1"], {})
        try:
            await client.range("x/")
        finally:
            await client.close()

    with pytest.raises(EtcdError, match="Connect call failed"):
        asyncio.run(ask())


@pytest.fixture
def locked(cluster: Cluster) -> Iterator[tuple[Net, Etcd, dict[str, str]]]:
    """The same etcd with users."""
    net, etcd = cluster
    right = etcd.lock()
    yield net, etcd, right
    etcd.unlock()


def test_a_password(locked: tuple[Net, Etcd, dict[str, str]], place: Path) -> None:
    net, etcd, right = locked
    asyncio.run(round_trip(Client([etcd.url], right)))
    wrong = {**right, "ETCD_AUTH_PASSWORD": "simsim"}
    with nodes.launcher(net, etcd, "a", "sim", state=place / "wrong", **wrong) as run:
        assert run.wait(30) == 3
        assert "etcd refuses the user root" in run.log
        assert "authentication failed" in run.log
    with nodes.launcher(net, etcd, "a", "sim", state=place / "right", **right) as run:
        run.ready()
        assert run.chat("Hello")["usage"]["completion_tokens"] == 16
        assert "sesame" not in run.log
        assert "sesame" not in run.admin("/status")[1]
        assert run.stop() == 0


def test_who_is_there_already_is_seen_before_anything_starts(cluster: Cluster, place: Path) -> None:
    net, etcd = cluster
    options = ("--roles", "decode", "--set", "workers.decode.count=1")
    with nodes.launcher(net, etcd, "a", "sim", *options, state=place / "one") as first:
        first.ready()
        # The same name on another node.
        joined = ("--discovery", "etcd", "--etcd-endpoints", etcd.url)
        with Run(
            "sim", *joined, "--node", "a", state=place / "two", host=net.nodes["b"], prefix=net.inside("b")
        ) as second:
            assert second.wait(30) == 3
        (error,) = [line for line in second.lines if "error[" in line]
        assert "error[node-taken]" in error
        assert f"at {net.nodes['a']}" in error
        assert "such as a-2" in error
        # Another name, but another deployment.
        assert [finding.code for finding in neighbours(etcd, "kv.block_size=32", node="b")] == ["node-unlike"]
        assert neighbours(etcd, "kv.block_size=32", node="b", dynamo_namespace="other") == []
        # Of the same deployment.
        assert neighbours(etcd, node="b") == []
        os.killpg(first.process.pid, signal.SIGKILL)
        first.process.wait(10)
        # What it told is there until its lease ends, and keeps nobody from taking its place.
        assert etcd.keys("gpt-oss-launcher/sim/nodes/")
        assert neighbours(etcd, node="a") == []


def neighbours(etcd: Etcd, *sets: str, **options: str) -> list[Finding]:
    """What the check of the other nodes says to a launcher of this test's own address."""
    made = plan("sim", *sets, discovery="etcd", etcd_endpoints=etcd.url, **options)
    return list(run_checks(rules.CHECKS, resolved("sim"), made, machine_for("sim"), {}))
