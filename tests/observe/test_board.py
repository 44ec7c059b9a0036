"""A /status page as a table: for `launcher status` and, below the log, for the live view."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.observe.view.live import render
from launcher.supervise.events import State
from tests.observe.support import killed, plan, process, state

PHASES = ("weights", "compile", "graphs")


def page(**changes: Any) -> dict[str, Any]:
    """A deployment that is loading: one worker ready, one at its compile, one dead."""
    states = [
        state("frontend"),
        state("decode-0", phases={"ready": 5.0}),
        state(
            "decode-1", state=State.LOADING, phase="compile", phases={"weights": 2.0, "compile": 9.0}, healthy=False,
            ready_at=None,
        ),
        state("decode-2", state=State.BACKOFF, healthy=False, pid=None, detail="killed by SIGKILL", restarts=2,
              last_exit=killed()),
    ]  # fmt: skip
    processes = [process(each.name, gpus=(str(n),)) for n, each in enumerate(states)]
    values: dict[str, Any] = {
        "ready": False, "reasons": ["decode-1 is loading (compile)"], "target": "sim", "engine": "mocker",
        "simulated": True, "model": "openai/gpt-oss-120b", "url": "http://127.0.0.1:8000", "uptime_s": 3725.0,
        "processes": [each.to_json() | {"planned_phases": list(PHASES)} for each in states],
        "workers": {"decode-0": {"kv_usage": 0.253, "running": 7.0}},
        "gpus": [{"index": 1, "uuid": "GPU-b", "name": "H200", "used_mib": 65536, "total_mib": 143771}],
        "serving": {"window_s": 10.0, "requests_per_s": 12.3, "output_tokens_per_s": 1234.5, "ttft_s": 0.035,
                    "itl_s": 0.0058, "in_flight": 12},
        "faults": [{"time": 1_800_000_000.0, "text": "decode-2 exited: killed by SIGKILL"}],
        "errors": [{"time": 1_800_000_001.0, "process": "decode-1", "line": "ERROR   cuda\ttrouble"}],
        "plan": plan(*processes, process("frontend")).to_json(),
    }  # fmt: skip
    return values | changes


def shown(columns: int = 120, rows: int = 40, **changes: Any) -> str:
    return "\n".join(line.text for line in render(page(**changes), columns, rows, colour=False))


def test_discovery_that_is_away_is_said() -> None:
    away = {"backend": "etcd", "reachable": False, "error": "http://10.0.0.9:2379: connection\nrefused"}
    lines = shown(ready=True, reasons=[], discovery=away).splitlines()
    assert lines[1].startswith("READY, etcd unreachable  sim: ")
    assert lines[2] == "  etcd: http://10.0.0.9:2379: connection refused"
    for well in ({"backend": "etcd", "reachable": True, "error": ""}, {"backend": "file"}):
        assert "unreachable" not in shown(discovery=well)


def test_it_shows_what_a_person_wants_to_know() -> None:
    text = shown()
    for expected in (
        "NOT READY  sim: openai/gpt-oss-120b on mocker (simulated)",
        "up 1:02:05",
        "waiting for: decode-1 is loading (compile)",
        "compile 2/3",
        "killed by SIGKILL",
        "64.0/140 GiB",
        "25%",
        "12.3 req/s  1,234 tok/s  TTFT 35 ms  ITL 5.8 ms  12 in flight  (last 10 s)",
        "decode-1: ERROR cuda trouble",
    ):
        assert expected in text, f"{expected!r} is not in\n{text}"


@pytest.mark.parametrize("columns", [40, 50, 70, 79])
def test_on_a_narrow_terminal_the_states_stay(columns: int) -> None:
    text = shown(columns)
    for name, word in (("decode-0", "ready"), ("decode-1", "loading"), ("decode-2", "backoff")):
        assert any(line.split()[:2] == [name, word] for line in text.splitlines()), text
    assert "restarts" not in text.split("process", 1)[1].splitlines()[0]


def test_clients_errors_are_a_number() -> None:
    assert "4xx: 3 in the last minute" in shown(client_errors={"count": 3, "window_s": 60.0})
    assert "4xx" not in shown(client_errors={"count": 0, "window_s": 60.0})


def test_ready_but_degraded_says_what_is_missing() -> None:
    capacity = {"decode": {"planned": 3, "ready": 2, "min_ready": 1}}
    text = shown(ready=True, reasons=[], degraded=True, capacity=capacity)
    assert "READY degraded (decode 2 of 3)" in text


def test_a_drain_is_timed() -> None:
    assert "DRAINING 0:12" in shown(drain={"draining": True, "seconds": 12.4})


def test_progress_grows_with_each_phase() -> None:
    def bar(reached: dict[str, float]) -> str:
        loading = state("decode-0", state=State.LOADING, phases=reached, healthy=False, ready_at=None)
        return shown(processes=[loading.to_json() | {"planned_phases": list(PHASES)}])

    assert "ready 0/3" in bar({})  # the phase's name is the state's own
    assert "1/3" in bar({"weights": 1.0})
    assert "3/3" in bar({"weights": 1.0, "graphs": 2.0})


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.parametrize("rows", [8, 12, 24, 60])
def test_it_fits_any_terminal_and_leaves_room_for_the_log(columns: int, rows: int) -> None:
    many = [state(f"decode-{n}").to_json() for n in range(16)]
    lines = render(page(processes=many), columns, rows, colour=True)
    assert len(lines) <= rows * 2 / 3
    assert all(line.width < columns for line in lines)


def test_those_that_are_not_well_are_shown_first() -> None:
    many = [state(f"decode-{n}").to_json() for n in range(16)]
    many[13] |= {"state": "failed", "healthy": False}
    text = shown(rows=24, processes=many, reasons=[])
    assert "decode-13" in text
    assert "more" in text


def test_a_line_of_a_log_cannot_play_with_the_terminal() -> None:
    errors = [{"time": 1.0, "process": "decode-0", "line": "ERROR [red]not markup[/red] \x1b[2J\x07"}]
    text = shown(errors=errors)
    assert "[red]not markup[/red]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_page_of_another_release_is_shown_as_far_as_it_goes() -> None:
    text = "\n".join(
        line.text
        for line in render({"processes": [{"name": "frontend", "state": "ready"}]}, 80, 24, colour=False)
    )
    assert "frontend" in text
