"""An etcd of three members: one of them, whichever, may be lost under load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.discovery.etcd import Etcd as Client
from launcher.discovery.etcd import EtcdError
from tests.plan.test_real_parsers import interpreter
from tests.support import nodes
from tests.support.certificates import Authority, environ
from tests.support.load import Load
from tests.support.nodes import Etcd, Net, Tls, etcds, launcher
from tests.support.runs import Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
STORES = ("s1", "s2", "s3")
OTHERS = ("1.3.1", "1.4.2")
SMALL = ("--set", "workers.prefill.count=1", "--set", "workers.decode.count=1")
BACKEND = "v1/instances/sim/backend/generate/"


@pytest.fixture
def net() -> Iterator[Net]:
    """Three nodes for etcd, two for parts."""
    if reason := nodes.missing():
        pytest.skip(reason)
    with Net() as made:
        for node in (*STORES, "a", "b"):
            made.add(node)
        yield made


@contextlib.contextmanager
def parts(
    net: Net, members: list[Etcd], state: Path, lease_s: int, *options: str, **env: str
) -> Iterator[tuple[Run, Run]]:
    """Frontend and prefill on one node, decode on the other."""

    def part(node: str, roles: str) -> Run:
        words = ("--roles", roles, "--etcd-lease-s", str(lease_s), *SMALL, *options)
        return launcher(net, members, node, "sim", *words, state=state, **env)

    with part("b", "decode") as decode, part("a", "frontend,prefill") as first:
        yield first.ready(), decode.ready()


def pids(*runs: Run) -> dict[str, int]:
    """Of every process of Dynamo."""
    return {state["name"]: state["pid"] for run in runs for state in run.status()["processes"]}


def loses(
    net: Net, members: list[Etcd], runs: tuple[Run, Run], lease_s: int, lose: Callable[[Etcd], object]
) -> None:
    """Nothing happens to requests or registrations for longer than a lease."""
    first, decode = runs
    before, keys = pids(*runs), members[0].keys(BACKEND)
    leader = next(each for each in members if each.leads())
    with Load([first.url], first.model, concurrency=4) as load:
        time.sleep(1)
        lose(leader)
        time.sleep(lease_s + 3)
    assert load.failures() == []
    assert len(load.requests) > 10
    assert pids(*runs) == before
    living = next(each for each in members if each is not leader)
    assert living.keys(BACKEND) == keys
    assert first.status()["discovery"]["reachable"]
    # A process that dies now is withdrawn, and its successor registers, all without the lost member.
    os.kill(before["decode-0"], signal.SIGKILL)
    decode.ready(30)
    until = time.monotonic() + 20
    while len(now := living.keys(BACKEND)) != 1 or now == keys:
        assert time.monotonic() < until, now
        time.sleep(0.2)
    assert decode.status()["discovery"]["withdrawn"] == 1


def test_the_launcher_goes_on_without_the_leader_or_another(net: Net, state: Path) -> None:
    async def ask(members: list[Etcd]) -> None:
        client = Client([each.url for each in members], {})
        try:
            lease = await client.grant(10)
            await client.put("x/one", b"1", lease)
            for member in sorted(members, key=lambda each: not each.leads())[:2]:
                member.stop()
                until = time.monotonic() + 5
                while True:  # until there is a leader
                    with contextlib.suppress(EtcdError):
                        if await client.keep_alive(lease):
                            break
                    assert time.monotonic() < until
                    await asyncio.sleep(0.1)
                assert [pair.lease for pair in await client.range("x/")] == [lease]
                member.start()
        finally:
            await client.close()

    with etcds(net, state, *STORES) as members:
        asyncio.run(ask(members))


@pytest.mark.slow
def test_the_leader_is_killed_under_load(net: Net, state: Path) -> None:
    with etcds(net, state, *STORES) as members, parts(net, members, state, 5) as runs:
        loses(net, members, runs, 5, lambda leader: leader.stop())


@pytest.mark.slow
@pytest.mark.parametrize("release", ["", *(pytest.param(each, marks=pytest.mark.compat) for each in OTHERS)])
def test_one_after_the_other_over_tls_with_users(net: Net, state: Path, release: str) -> None:
    """Through the gate. Each is killed and comes back before the next; the last one's machine loses its power."""
    (state / "pki").mkdir()
    authority = Authority(state / "pki")
    client = authority.sign("client")
    tls = {node: Tls(authority.sign(node, net.nodes[node]), authority, client=client) for node in STORES}
    options = ("--python", str(interpreter(release))) if release else ()
    with etcds(net, state, *STORES, tls=tls) as members:
        env = environ(authority, client) | members[0].lock()
        for member in members:
            member.user = members[0].user
        with parts(net, members, state, 20, *options, **env) as runs:
            before, keys = pids(*runs), members[0].keys(BACKEND)
            assert "etcd-gate" in before
            with Load([runs[0].url], runs[0].model, concurrency=4) as load:
                for member in members:
                    member.stop()
                    time.sleep(6)
                    member.start()
                    time.sleep(2)
                net.cut(members[2].node)
                time.sleep(25)
            assert load.failures() == []
            assert pids(*runs) == before
            assert members[0].keys(BACKEND) == keys
            net.mend(members[2].node)


@pytest.mark.slow
@pytest.mark.parametrize("release", ["", *(pytest.param(each, marks=pytest.mark.compat) for each in OTHERS)])
def test_the_leaders_machine_loses_its_power(net: Net, state: Path, release: str) -> None:
    """Silence: no connection is closed. At the default lease."""
    options = ("--python", str(interpreter(release))) if release else ()
    with etcds(net, state, *STORES) as members, parts(net, members, state, 30, *options) as runs:

        def power(leader: Etcd) -> None:
            net.cut(leader.node)
            leader.stop()

        loses(net, members, runs, 30, power)
