"""How a part joins the others: roles, addresses, names; every contradiction is a finding before anything starts."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest

from launcher.checks.versions import releases
from launcher.findings import LauncherError
from launcher.machine import Machine
from launcher.machine.model import Interface
from launcher.plan.join import Join, Wanted, settle
from launcher.plan.model import Role
from tests.support.plans import plan, planned

LO, ETH, IB = (
    Interface("lo", "127.0.0.1", loopback=True),
    Interface("eth0", "10.0.0.2"),
    Interface("ib0", "10.9.0.2"),
)
ETCD = {"discovery": "etcd", "etcd_endpoints": "http://10.0.0.9:2379"}


def join(
    *interfaces: Interface,
    environ: dict[str, str] | None = None,
    given: dict[str, str] | None = None,
    **wanted: Any,
) -> Join:
    machine = Machine.like("H200", 8, interfaces=interfaces or (LO, ETH), hostname="node-1.rack")
    values = {"backend": "etcd", **wanted}
    return settle(
        Wanted(**values), target="t", present=("prefill", "decode"), machine=machine, environ=environ or {},
        given=given or {},
    )  # fmt: skip


def fault(*interfaces: Interface, **wanted: Any) -> set[str]:
    with pytest.raises(LauncherError) as caught:
        join(*interfaces, **wanted)
    return {finding.code for finding in caught.value.findings}


def test_one_node_is_the_default() -> None:
    alone = join(backend="file")
    assert (alone.alone, alone.host, alone.interface, alone.namespace) == (True, "127.0.0.1", "lo", "t")


def test_the_address_is_one_of_this_machines() -> None:
    found = join()
    assert (found.host, found.interface, found.node) == ("10.0.0.2", "eth0", "node-1")
    assert join(LO, ETH, IB, advertise="ib0").host == "10.9.0.2"
    assert join(LO, ETH, IB, advertise="10.9.0.2").interface == "ib0"
    assert join(advertise="127.0.0.1").interface == "lo"


def test_an_address_that_cannot_be_advertised() -> None:
    assert fault(advertise="0.0.0.0") == {"advertise-wildcard"}
    assert fault(advertise="::") == {"advertise-wildcard"}
    assert fault(advertise="10.0.0.3") == {"advertise-other"}
    assert fault(LO) == {"advertise-unclear"}
    assert fault(Interface("eth0", "10.0.0.2", up=False), advertise="eth0") == {"advertise-other"}


def test_a_part_needs_discovery_of_other_machines() -> None:
    assert fault(backend="file", roles=("prefill",)) == {"roles-alone"}
    assert not join(backend="file", roles=("frontend", "prefill", "decode")).endpoints
    assert fault(roles=("aggregated",)) == {"role-unknown"}
    assert fault(backend="file", given={"etcd_endpoints": "--etcd-endpoints"}) == {"discovery-unused"}


def test_names_become_keys() -> None:
    assert fault(namespace="a/b", node="c.d") == {"namespace-name", "node-name"}
    assert join(namespace="blue", node="n-7").namespace == "blue"


def test_endpoints_are_given_or_inherited() -> None:
    assert join(endpoints="a:1, https://b:2").endpoints == ("http://a:1", "https://b:2")
    assert join(environ={"ETCD_ENDPOINTS": "http://c:3"}).endpoints == ("http://c:3",)
    assert join().endpoints == ("http://localhost:2379",)
    assert join(backend="kubernetes", environ={"POD_IP": "10.0.0.2"}).endpoints == ()


@pytest.mark.parametrize("target", ["h200-disagg", "gb200-trtllm-disagg", "h200-agg", "sim"])
def test_no_process_past_one_node_has_loopback_in_its_planes(target: str) -> None:
    with planned(target, roles="", allow_multi_node_disagg=True, **ETCD) as held:
        found, release = held.plan, releases.numbers(held.planner.target.validated.dynamo)
    address = found.join.host
    assert address.startswith("10.")
    for process in found.processes:
        if process.role is Role.HELPER:
            assert f"tcp://{address}:{process.ports['events']}" in process.argv
            continue
        env = process.env
        assert env["DYN_DISCOVERY_BACKEND"] == "etcd"
        assert env["ETCD_ENDPOINTS"] == "http://10.0.0.9:2379"
        assert env["ETCD_LEASE_TTL"] == "30"
        assert env["DYN_TCP_RPC_HOST"] == env["DYN_SYSTEM_HOST"] == address
        # Earlier releases cannot be told; they take the address that leads out, see `answers-elsewhere`.
        named = env.get("DYN_TCP_RESPONSE_STREAM_HOST")
        assert named == (None if release < (1, 5) else found.join.interface)
        assert named != "lo"
        assert "DYN_FILE_KV" not in env
        assert "UCX_NET_DEVICES" not in env
        if process.role is not Role.FRONTEND and process.health is not None:
            assert process.health.host == address


def test_a_tray_of_four_gpus_holds_its_part_of_the_five() -> None:
    parts = {
        roles: plan("gb200-trtllm-disagg", machine="GB200:4", roles=roles, **ETCD)
        for roles in ("frontend,prefill", "decode")
    }
    assert [process.name for process in parts["frontend,prefill"].processes] == [
        "events",
        "frontend",
        "prefill-0",
    ]
    assert [process.name for process in parts["decode"].processes] == ["events", "decode-0"]
    assert parts["decode"].process("decode-0").gpus == ("0", "1", "2", "3")
    assert all(part.claims.disaggregated for part in parts.values())
    with planned("gb200-trtllm-disagg", machine="GB200:4", roles="decode", **ETCD) as held:
        assert "node-small" not in {finding.code for finding in held.findings}


def test_vllms_prefill_and_decode_apart_take_a_flag() -> None:
    with pytest.raises(LauncherError) as caught:
        plan("h200-disagg", roles="prefill", **ETCD)
    (finding,) = caught.value.findings
    assert finding.code == "disagg-nodes"
    assert "--allow-multi-node-disagg" in finding.fix
    with planned("h200-disagg", roles="prefill", allow_multi_node_disagg=True, **ETCD) as held:
        assert "disagg-nodes" in {finding.code for finding in held.findings}
    # Whole pairs start, with a word about pairs across nodes; TensorRT-LLM's target is made for two nodes.
    with planned("h200-disagg", roles="prefill,decode", **ETCD) as held:
        assert "disagg-nodes" in {finding.code for finding in held.findings}


@pytest.mark.parametrize(
    ("target", "options", "told"), [("h200-agg", ETCD, True), ("h200-agg", {}, False), ("sim", ETCD, False)]
)
def test_what_a_release_cannot_do_past_one_node_is_said(
    target: str, options: dict[str, str], told: bool
) -> None:
    with planned(target, **options) as held:
        found = [finding for finding in held.findings if finding.code == "nodes-release"]
        assert len(found) == told
        assert all("until they are withdrawn" in finding.what and "30 s" in finding.why for finding in found)


def test_kubernetes_discovery_leaves_the_events_to_dynamo() -> None:
    found = plan("h200-agg", discovery="kubernetes")
    assert found.processes[0].name == "frontend"
    env = found.process("aggregated-0").env
    assert env["DYN_EVENT_PLANE_HOST"] == found.join.host
    assert "DYN_ZMQ_BROKER_URL" not in env
    assert "ETCD_ENDPOINTS" not in env


def test_no_credential_is_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_AUTH_USERNAME", "root")
    monkeypatch.setenv("ETCD_AUTH_PASSWORD", "sesame")
    found = plan("sim", **ETCD)
    assert "sesame" not in str(found.to_json(masked=False))
    # Children inherit them: none of the patterns that are taken out of their environment fits.
    assert not any(fnmatch.fnmatch("ETCD_AUTH_PASSWORD", pattern) for pattern in found.scrub)


def test_an_etcd_behind_tls_is_reached_through_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "etcd-gate" not in {process.name for process in plan("sim", **ETCD).processes}
    # Of several members one may fall silent, which Dynamo notices late or never.
    several = plan("sim", discovery="etcd", etcd_endpoints="http://10.0.0.9:2379,http://10.0.0.8:2379")
    assert several.processes[0].argv[-2:] == ("http://10.0.0.9:2379", "http://10.0.0.8:2379")
    monkeypatch.setenv("ETCD_AUTH_CA", "/pki/ca.crt")
    monkeypatch.setenv("ETCD_AUTH_CLIENT_CERT", "/pki/own.crt")
    found = plan("sim", discovery="etcd", etcd_endpoints="https://10.0.0.9:2379,https://10.0.0.8:2379")
    gate = found.processes[0]
    port = gate.ports["etcd"]
    assert gate.name == "etcd-gate"
    assert gate.argv[-7:] == (
        str(port), "https://10.0.0.9:2379", "https://10.0.0.8:2379", "--ca", "/pki/ca.crt", "--cert", "/pki/own.crt",
    )  # fmt: skip
    for process in found.processes:
        if process.role is not Role.HELPER:
            assert process.env["ETCD_ENDPOINTS"] == f"http://127.0.0.1:{port}"
    assert any("through etcd-gate" in note for note in found.notes)
    # Dynamo would take the paths for the PEM texts themselves.
    assert {"ETCD_AUTH_CA", "ETCD_AUTH_CLIENT_CERT", "ETCD_AUTH_CLIENT_KEY"} <= set(found.scrub)
