"""One table of ports: disjoint, low enough, tried, movable, and two launchers apart."""

from __future__ import annotations

import socket

import pytest

from launcher.plan.output import table
from launcher.plan.ports import BLOCK, CEILING, NoPorts, PortTable
from tests.support.plans import TARGETS, plan, planned


def numbers(target: str) -> list[int]:
    found = plan(target, admin_port="9000")
    ports = [found.admin_port]
    for process in found.processes:
        for purpose, port in process.ports.items():
            # vLLM takes the number it is given and the one after it.
            ports += [port, port + 1] if purpose == "nixl" else [port]
    return ports


@pytest.mark.parametrize("target", TARGETS)
def test_all_ports_of_a_plan_are_disjoint_and_low(target: str) -> None:
    ports = numbers(target)
    assert len(ports) == len(set(ports))
    assert max(ports) <= CEILING


def test_one_setting_moves_all_internal_ports() -> None:
    found = plan("h200-disagg", base_port="26000")
    internal = [
        port for process in found.processes for purpose, port in process.ports.items() if purpose != "http"
    ]
    assert all(26000 <= port < 26000 + BLOCK for port in internal)
    assert found.http_port == 8000


def test_a_taken_block_is_said() -> None:
    with planned("sim", base_port="24000") as first, planned("sim", base_port="24000") as second:
        assert not any("taken" in note for note in first.plan.notes)
        assert "Ports 24000-24499 are taken by other launchers, using 24500." in second.plan.notes
        assert "note: Ports 24000-24499 are taken" in table.render(second.plan)


def test_a_port_that_somebody_holds_is_passed_over() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        held = holder.getsockname()[1]
        table = PortTable(held, ceiling=held + BLOCK)
        try:
            assert table.take("a", "system") > held
        finally:
            table.close()


def test_two_tables_never_share_a_block() -> None:
    first = PortTable(21000)
    second = PortTable(21000)
    try:
        assert second.start >= first.start + BLOCK
    finally:
        first.close()
        second.close()
    third = PortTable(21000)
    try:
        assert third.start == first.start
    finally:
        third.close()


def test_two_plans_held_at_once_have_no_port_in_common() -> None:
    with planned("sim", base_port="22000") as first, planned("sim", base_port="22000") as second:
        sets = [
            {port for process in held.plan.processes for port in process.ports.values()} - {8000}
            for held in (first, second)
        ]
        assert sets[0].isdisjoint(sets[1])


def test_spans_stay_together_and_are_given_back_whole() -> None:
    table = PortTable(23000, is_free=lambda port: port != 23001)
    try:
        assert table.take("a", "nixl", 2) == 23002
        table.release([23002])
        assert table.take("b", "system") == 23004
    finally:
        table.close()


def test_a_restart_gets_other_numbers_and_the_block_wraps() -> None:
    table = PortTable(23000, is_free=lambda port: True)
    try:
        first = table.take("a", "system")
        table.release([first])
        second = table.take("a", "system")
        assert second != first
        seen = {second}
        for _ in range(2 * BLOCK):
            table.release([second])
            second = table.take("a", "system")
            seen.add(second)
        assert len(seen) == BLOCK
    finally:
        table.close()


def test_a_full_block_says_so() -> None:
    table = PortTable(23000, is_free=lambda port: False)
    try:
        with pytest.raises(NoPorts, match="500 ports"):
            table.take("a", "system")
    finally:
        table.close()


def test_no_block_above_the_ceiling() -> None:
    with pytest.raises(NoPorts, match="between 32000 and 32100"):
        PortTable(32000, ceiling=32100)


def test_respawn_gives_fresh_ports_and_keeps_the_public_one() -> None:
    with planned("h200-disagg", base_port="24000") as held:
        old = held.plan.process("decode-0")
        new = held.planner.respawn(old, 1)
        assert new.incarnation == 1
        assert set(new.ports.values()).isdisjoint(old.ports.values())
        assert new.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] == str(new.ports["nixl"])
        assert new.gpus == old.gpus
        frontend = held.planner.respawn(held.plan.process("frontend"), 1)
        assert frontend.ports["http"] == 8000
        assert frontend.ports["stream"] != held.plan.process("frontend").ports["stream"]
        broker = held.planner.respawn(held.plan.process("events"), 1)
        assert broker.argv == held.plan.process("events").argv
