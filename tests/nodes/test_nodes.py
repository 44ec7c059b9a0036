"""Past one node: real launchers on nodes of their own, joined by a real etcd."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.load import Load
from tests.support.nodes import ETCD_PORT, Etcd, Net, launcher
from tests.support.runs import Run

pytestmark = pytest.mark.e2e
Cluster = tuple[Net, Etcd]


@pytest.fixture(scope="module")
def disagg(cluster: Cluster, place: Path) -> Iterator[tuple[Run, Run, Run]]:
    """Decode first, then the rest: prefill, and two frontends."""
    net, etcd = cluster
    with contextlib.ExitStack() as stack:
        decode = stack.enter_context(launcher(net, etcd, "b", "sim", "--roles", "decode", state=place))
        decode.ready()
        first = stack.enter_context(
            launcher(net, etcd, "a", "sim", "--roles", "frontend,prefill", state=place)
        )
        # What a frontend proves is about the workers that have come by then.
        first.ready()
        second = stack.enter_context(launcher(net, etcd, "c", "sim", "--roles", "frontend", state=place))
        yield first, decode, second.ready()


def test_every_frontend_answers(disagg: tuple[Run, Run, Run]) -> None:
    first, _, second = disagg
    for run in (first, second):
        assert run.chat("Hello")["usage"]["completion_tokens"] == 16
        assert list(run.stream("Hello"))[-1]["choices"][0]["finish_reason"] == "length"


def test_status_knows_the_other_parts(disagg: tuple[Run, Run, Run]) -> None:
    first, decode, second = disagg
    page = first.status()["discovery"]
    assert page["backend"] == "etcd"
    assert page["instances"] == {"backend": 2, "prefill": 2}
    assert {each["node"]: each["roles"] for each in page["nodes"]} == {"b": ["decode"], "c": ["frontend"]}
    names = [process["name"] for each in page["nodes"] for process in each["processes"]]
    assert {"b/decode-0", "b/decode-1", "c/frontend"} <= set(names)
    assert len(names) == len(set(names))
    assert [process["name"] for process in decode.status()["processes"]] == ["events", "decode-0", "decode-1"]
    assert {each["node"] for each in second.status()["discovery"]["nodes"]} == {"a", "b"}


def test_all_planes_listen_on_the_advertised_address_only(
    disagg: tuple[Run, Run, Run], cluster: Cluster
) -> None:
    net, _ = cluster
    for node, least in (("a", 8), ("b", 6), ("c", 4)):
        found = net.listeners(node)
        assert {address for address, _ in found} <= {net.nodes[node], "127.0.0.1"}
        assert len([address for address, _ in found if address == net.nodes[node]]) >= least


def test_kv_events_cross_nodes(disagg: tuple[Run, Run, Run]) -> None:
    _, _, second = disagg
    (proof,) = [proof for proof in second.status()["proofs"] if proof["name"] == "KV routing"]
    assert proof["outcome"] == "passed"
    assert set(proof["figures"]["workers"]) == {"a/prefill-0", "a/prefill-1"}
    assert proof["figures"]["events_applied"] > 0


def test_transfer_is_proven_for_pairs_over_nodes(disagg: tuple[Run, Run, Run]) -> None:
    first, _, _ = disagg
    (proof,) = [proof for proof in first.status()["proofs"] if proof["name"] == "KV transfer"]
    assert {(pair["prefill"], pair["decode"]) for pair in proof["figures"]["pairs"]} == {
        (f"prefill-{i}", f"b/decode-{j}") for i in range(2) for j in range(2)
    }


def test_a_dead_worker_is_withdrawn_from_every_frontend_at_once(
    disagg: tuple[Run, Run, Run], cluster: Cluster
) -> None:
    first, decode, second = disagg
    _, etcd = cluster
    with Load([first.url, second.url], first.model, concurrency=8) as load:
        time.sleep(2)
        before = set(etcd.keys("v1/instances/sim/backend/generate/"))
        os.kill(decode.process_state("decode-1")["pid"], signal.SIGKILL)
        killed = time.monotonic()
        while len(before & set(etcd.keys("v1/instances/sim/backend/generate/"))) > 1:
            assert time.monotonic() - killed < 5, "its lease would have expired by itself only after 10 s"
            time.sleep(0.02)
        decode.ready(60)
        time.sleep(1)
    assert decode.status()["discovery"]["withdrawn"] == 1
    assert "withdrew decode-1 from etcd" in decode.log
    assert load.failures() == []
    assert len(load.requests) > 20


def test_another_namespace_never_mixes(disagg: tuple[Run, Run, Run], cluster: Cluster, place: Path) -> None:
    net, etcd = cluster
    first, *_ = disagg
    seen = first.status()["discovery"]
    options = (
        "--dynamo-namespace",
        "other",
        "--set",
        "workers.prefill.count=1",
        "--set",
        "workers.decode.count=1",
    )
    with launcher(net, etcd, "b", "sim", *options, state=place / "other") as other:
        other.ready()
        for run, namespace in ((other, "other"), (first, "sim")):
            ids = {int(key.rpartition("/")[2], 16) for key in etcd.keys(f"v1/instances/{namespace}/")}
            went = [
                run.chat(f"Hello {number}", nvext={"extra_fields": ["worker_id"]})["nvext"]["worker_id"]
                for number in range(12)
            ]
            used = {found[f"{role}_worker_id"] for found in went for role in ("prefill", "decode")}
            assert used <= ids
            # Of each role at least one was in use.
            assert len(used) >= 2
            assert run.status()["discovery"]["namespace"] == namespace
        page = other.status()["discovery"]
        assert page["nodes"] == []
        assert page["instances"] == {"backend": 1, "prefill": 1}
        assert first.status()["discovery"]["instances"] == seen["instances"]
        assert other.stop() == 0
    # Stopping one takes nothing of the other.
    assert first.chat("Hello")["usage"]["completion_tokens"] == 16
    assert etcd.keys("v1/instances/other/") == []


def test_a_node_is_added_and_drained_under_load(
    disagg: tuple[Run, Run, Run], cluster: Cluster, place: Path
) -> None:
    net, etcd = cluster
    first, _, second = disagg
    with Load([first.url, second.url], first.model, concurrency=12) as load:
        time.sleep(1)
        with launcher(net, etcd, "store", "sim", "--roles", "decode", state=place) as more:
            more.ready()
            time.sleep(1.5)
            assert first.status()["discovery"]["instances"]["backend"] == 4
            assert more.stop() == 0
        time.sleep(1)
    assert load.failures() == []
    assert len(load.requests) > 20
    assert first.status()["discovery"]["instances"]["backend"] == 2
    assert [each["node"] for each in first.status()["discovery"]["nodes"]] == ["b", "c"]
    assert "node store at" in first.log


def test_a_node_that_is_killed_whole_is_withdrawn_by_the_others(
    disagg: tuple[Run, Run, Run], cluster: Cluster, place: Path
) -> None:
    """Its leases would stand for 30 s."""
    first, *_ = disagg
    net, etcd = cluster
    small = ("--set", "workers.decode.count=1")
    with launcher(net, etcd, "store", "sim", "--roles", "decode", *small, state=place / "whole") as more:
        more.ready()
        before = set(etcd.keys("v1/instances/sim/backend/generate/"))
        lost = more.process_state("decode-0")["pid"]
        # Nobody is there to withdraw it while its launcher stands still, but it serves: nobody else may either.
        os.kill(more.process.pid, signal.SIGSTOP)
        time.sleep(5)
        assert set(etcd.keys("v1/instances/sim/backend/generate/")) == before
        os.kill(more.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        while len(now := set(etcd.keys("v1/instances/sim/backend/generate/"))) == len(before):
            assert time.monotonic() - killed < 10
            time.sleep(0.1)
        assert now < before
        while Path(f"/proc/{lost}").exists():
            assert time.monotonic() - killed < 15
            time.sleep(0.1)
    assert any("of node store: it and its launcher are gone" in run.log for run in disagg)
    assert first.chat("Hello")["usage"]["completion_tokens"] == 16


def test_no_etcd_is_a_finding_before_anything_starts(cluster: Cluster, place: Path) -> None:
    net, _ = cluster
    nobody = f"http://{net.nodes['a']}:{ETCD_PORT}"
    options = ("--discovery", "etcd", "--etcd-endpoints", nobody)
    with Run("sim", *options, state=place / "x", host=net.nodes["b"], prefix=net.inside("b")) as run:
        assert run.wait(30) == 3
    assert "connection refused" in run.log
    assert "etcd-unreachable" in run.log
