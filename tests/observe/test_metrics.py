"""The launcher's own metrics, by the official parser."""

from __future__ import annotations

import time

from launcher.observe.capacity import capacity
from launcher.observe.exposition import merge, parse
from launcher.observe.gpus import GpuUse
from launcher.observe.history import History
from launcher.observe.metrics import Facts, OwnMetrics
from launcher.observe.scrape import Result, Scrape, Target
from launcher.plan.model import Role
from launcher.supervise.events import Event, Kind, State
from tests.observe.support import killed, plan, samples, state, value


def facts(**changes: object) -> Facts:
    """A frontend, a ready worker and one that is being restarted."""
    history = History()
    history.add(Event(Kind.STARTED, "decode-1", Role.DECODE))
    history.add(Event(Kind.EXITED, "decode-1", Role.DECODE, exit=killed()))
    history.add(Event(Kind.RESTARTING, "decode-1", Role.DECODE, seconds=0.5))
    states = [
        state("frontend"),
        state("decode-0", phases={"weights": 1.5, "ready": 5.0}),
        state("decode-1", state=State.BACKOFF, healthy=False, restarts=1, pid=None),
    ]
    values = {
        "plan": plan(), "states": states, "capacity": capacity(plan(), states), "ready": True, "started_wall": 1.8e9,
        "ready_s": 5.5, "history": history, "restored": 2, "withdrawn": 3, "lines": 100, "dropped": 4, "incidents": 1,
        "gpus": [GpuUse(0, "GPU-x", "NVIDIA H200", 1024, 2048)], "scrape": None,
    }  # fmt: skip
    return Facts(**{**values, **changes})  # type: ignore[arg-type]


def page(**changes: object) -> str:
    """The metrics page of these facts."""
    return OwnMetrics(lambda: facts(**changes)).text()


def test_the_state_of_each_process_is_a_set_of_which_one_is_true() -> None:
    text = page()
    assert value(text, "launcher_worker_state", worker="decode-1", state="backoff", gpu="1") == 1
    states = {dict(labels)["state"] for (name, labels) in samples(text) if name == "launcher_worker_state"}
    assert states == {each.value for each in State}
    ones = [key for key, number in samples(text).items() if key[0] == "launcher_worker_state" and number == 1]
    assert len(ones) == 3


def test_degraded_capacity_shows_per_role() -> None:
    text = page()
    assert value(text, "launcher_workers_planned", role="decode") == 2
    assert value(text, "launcher_workers_ready", role="decode") == 1
    assert value(text, "launcher_workers_min_ready", role="decode") == 1


def test_restarts_are_counted_by_reason_and_begin_at_zero() -> None:
    text = page()
    assert value(text, "launcher_worker_restarts_total", worker="decode-1", reason="signal") == 1
    assert value(text, "launcher_worker_restarts_total", worker="decode-0", reason="hung") == 0


def test_everything_else_that_is_promised() -> None:
    text = page()
    for name, expected in {
        "launcher_ready": 1,
        "launcher_time_to_ready_seconds": 5.5,
        "launcher_draining": 0,
        "launcher_drain_seconds": 0,
        "launcher_incidents_total": 1,
        "launcher_discovery_restored_total": 2,
        "launcher_discovery_withdrawn_total": 3,
        "launcher_log_lines_total": 100,
        "launcher_log_lines_dropped_total": 4,
    }.items():
        assert value(text, name) == expected, name
    assert value(text, "launcher_worker_up", worker="decode-0", role="decode") == 1
    assert value(text, "launcher_worker_phase_seconds", worker="decode-0", phase="weights") == 1.5
    assert value(text, "launcher_build_info", target="sim", plan=plan().hash(), simulated="true") == 1
    assert value(text, "launcher_gpu_memory_used_bytes", gpu="0") == 2**30
    assert value(text, "launcher_process_resident_memory_bytes") > 1e6


def test_not_ready_yet_has_no_time_to_ready() -> None:
    assert "time_to_ready" not in page(ready_s=None, ready=False)


def test_a_drain_is_timed() -> None:
    history = History()
    history.add(Event(Kind.DRAINING, at=time.monotonic() - 7.0))
    text = page(history=history)
    assert value(text, "launcher_draining") == 1
    assert 7.0 <= value(text, "launcher_drain_seconds") < 20.0


def test_the_health_of_each_scrape_is_a_metric() -> None:
    good = parse("# TYPE x counter\nx 1\n# TYPE y gauge\ny 1\nbad line here\n")
    other = parse("# TYPE x gauge\nx 1\n")
    found = [Target(f"decode-{number}", "decode", "", "") for number in range(3)]
    results = (
        Result(found[0], 0.1, good),
        Result(found[1], 0.2, other),
        Result(found[2], 1.0, None, "no page"),
    )
    merged = merge([(each.target.labels, each.page or parse("")) for each in results])
    text = page(scrape=Scrape(results, merged, 0.0))
    assert [value(text, "launcher_scrape_up", worker=f"decode-{n}") for n in range(3)] == [1, 1, 0]
    assert value(text, "launcher_scrape_bad_lines", worker="decode-0") == 1
    assert value(text, "launcher_scrape_conflicting_families", worker="decode-1") == 1
    assert value(text, "launcher_scrape_samples", worker="decode-0") == 2
    assert value(text, "launcher_scrape_duration_seconds", worker="decode-2") == 1.0


def test_own_and_merged_make_one_valid_page() -> None:
    merged = merge(
        [
            (
                {"worker": "decode-0"},
                parse("# TYPE x gauge\nx 1\n# TYPE process_open_fds gauge\nprocess_open_fds 3\n"),
            )
        ]
    )
    samples(page() + merged.text)
