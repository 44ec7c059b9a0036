from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import time
import uuid
from pathlib import Path

import pytest

from launcher.findings import Exit
from launcher.plan.model import Http, Phase, Process, Ranks, Role, Stop
from launcher.supervise import procfs
from launcher.supervise.events import Event, Kind, State
from launcher.supervise.policy import RestartPolicy
from launcher.supervise.supervisor import Supervisor
from launcher.supervise.watch import Watch
from tests.supervise.conftest import (
    HTTP,
    LIMIT_S,
    QUICK,
    Bench,
    alive,
    free_port,
    plan_of,
    process,
    python,
    run,
    server,
    soon,
    supervised,
)

DIES = "print('almost'); print('last words'); raise SystemExit({})"
OFF = RestartPolicy(enabled=False)


def pid_of(supervisor: Supervisor, name: str) -> int:
    (pid,) = [state.pid for state in supervisor.snapshot() if state.name == name]
    assert pid is not None
    return pid


async def ready(supervisor: Supervisor) -> None:
    assert await supervisor.wait_healthy()


async def nothing(supervisor: Supervisor) -> None:
    await ready(supervisor)


def test_start_state_and_stop(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        assert supervisor.healthy
        front, decode = supervisor.snapshot()
        assert (front.name, front.role, front.state, front.healthy) == (
            "frontend",
            Role.FRONTEND,
            State.READY,
            True,
        )
        assert decode.pid
        assert alive(decode.pid)
        assert decode.to_json()["ports"] == dict(decode.ports)
        assert decode.to_json()["ready_s"] >= 0

    code, supervisor = supervised(bench, plan_of(server("frontend"), server("decode-0")), check)
    assert code is Exit.OK
    assert [state.state for state in supervisor.snapshot()] == [State.STOPPED] * 2
    assert not supervisor.healthy
    assert bench.events[-1].kind is Kind.FINISHED


@pytest.mark.parametrize("status", [0, 3])
def test_any_exit_is_a_failure_and_shows_the_last_lines(bench: Bench, status: int) -> None:
    async def check() -> None:
        plan = plan_of(process("decode-0", DIES.format(status)), process("decode-1"))
        supervisor = bench.supervisor(plan, policy=OFF)
        assert await supervisor.run() is Exit.PROCESS_FAILED
        failure = supervisor.failure
        assert failure is not None
        assert (failure.process, failure.reason) == ("decode-0", f"exit code {status}")
        assert failure.last_lines == ("almost", "last words")
        assert [state.state for state in supervisor.snapshot()] == [State.FAILED, State.STOPPED]

    run(check())
    output = bench.output()
    assert f"decode-0 failed: exit code {status}" in output
    assert output.count("last words") == 2  # where it came, and in the summary


def test_a_program_that_cannot_be_started(bench: Bench) -> None:
    async def check() -> None:
        supervisor = bench.supervisor(plan_of(process("decode-0", argv=("/no/such",))), policy=OFF)
        assert await supervisor.run() is Exit.PROCESS_FAILED
        assert supervisor.failure is not None
        assert "cannot start /no/such: No such file" in supervisor.failure.reason

    run(check())


def test_a_dead_worker_is_withdrawn_at_once_and_comes_back_anew(bench: Bench) -> None:
    deaths: list[tuple[str, int, float]] = []
    awaited: list[str] = []
    fresh = server("decode-0", incarnation=1)

    def on_death(process: Process, incarnation: int) -> None:
        deaths.append((process.name, incarnation, time.monotonic()))

    async def before(process: Process) -> None:
        awaited.append(process.name)

    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        killed = pid_of(supervisor, "decode-0")
        os.kill(killed, signal.SIGKILL)
        await soon(lambda: bench.seen(Kind.HEALTHY, "decode-0", 2))
        (exited,) = bench.of(Kind.EXITED)
        assert exited.exit is not None
        assert exited.exit.signal == signal.SIGKILL
        ((name, incarnation, at),) = deaths
        assert (name, incarnation) == ("decode-0", 0)
        assert at <= exited.at  # before anything else
        assert awaited == ["decode-0"]
        again = supervisor.snapshot()[0]
        assert (again.restarts, again.incarnation, dict(again.ports)) == (1, 1, dict(fresh.ports))
        assert pid_of(supervisor, "decode-1") == bench.of(Kind.STARTED, "decode-1")[0].pid

    plan = plan_of(server("decode-0"), server("decode-1"))
    hooks = {"on_death": on_death, "before_restart": before, "respawn": lambda process, number: fresh}
    assert supervised(bench, plan, check, **hooks)[0] is Exit.OK


def test_the_kernel_s_notice_comes_within_milliseconds(bench: Bench) -> None:
    took: list[float] = []

    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        for count in range(1, 6):
            before = time.monotonic()
            os.kill(pid_of(supervisor, "decode-0"), signal.SIGKILL)
            await soon(lambda count=count: bench.seen(Kind.STARTED, "decode-0", count + 1))  # type: ignore[misc]
            took.append(bench.of(Kind.EXITED)[-1].at - before)

    policy = RestartPolicy(first_s=0.0, budget=10)
    assert supervised(bench, plan_of(process("decode-0")), check, policy=policy)[0] is Exit.OK
    assert min(took) < 0.05


def test_a_spent_budget_drains_and_ends_with_4(bench: Bench) -> None:
    async def check() -> None:
        plan = plan_of(process("decode-0", "pass"), process("decode-1"))
        supervisor = bench.supervisor(plan, policy=RestartPolicy(budget=2, first_s=0.0))
        assert await supervisor.run() is Exit.PROCESS_FAILED
        assert supervisor.failure is not None
        assert "budget is spent" in supervisor.failure.reason
        assert len(bench.of(Kind.STARTED, "decode-0")) == 3
        assert bench.seen(Kind.DRAINED, "decode-1")

    run(check())


def test_a_process_that_never_became_ready_gets_two_tries(bench: Bench) -> None:
    async def check() -> None:
        plan = plan_of(process("decode-0", "pass", health=Http("127.0.0.1", free_port(), "/")))
        supervisor = bench.supervisor(plan, policy=RestartPolicy(budget=9, first_s=0.0))
        assert await supervisor.run() is Exit.PROCESS_FAILED
        assert len(bench.of(Kind.STARTED)) == 2

    run(check())


def test_hooks_that_fail_are_logged_and_survived(bench: Bench) -> None:
    def boom(*values: object) -> None:
        raise RuntimeError("boom")

    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        os.kill(pid_of(supervisor, "decode-0"), signal.SIGKILL)
        await soon(lambda: bench.seen(Kind.STARTED, "decode-0", 2))

    code, _ = supervised(bench, plan_of(process("decode-0")), check, on_death=boom, before_restart=boom)
    assert code is Exit.OK
    assert "on_death of decode-0 failed: RuntimeError: boom" in bench.output()


def test_a_respawn_that_fails_ends_the_run(bench: Bench) -> None:
    def no(process: Process, incarnation: int) -> Process:
        raise RuntimeError("no port left")

    async def check() -> None:
        supervisor = bench.supervisor(plan_of(process("decode-0", "pass")), respawn=no)
        assert await supervisor.run() is Exit.PROCESS_FAILED
        assert supervisor.failure is not None
        assert "no port left" in supervisor.failure.reason

    run(check())


def test_a_fatal_line_is_a_death(bench: Bench) -> None:
    program = "import time; print('EngineDeadError: gone'); time.sleep(1000)"

    async def check() -> None:
        plan = plan_of(process("decode-0", program, fatal=("EngineDeadError",)))
        supervisor = bench.supervisor(plan, policy=OFF)
        assert await supervisor.run() is Exit.PROCESS_FAILED
        assert supervisor.failure is not None
        assert "its log says: EngineDeadError: gone" in supervisor.failure.reason

    run(check())


def test_phases_are_seen_with_their_time(bench: Bench) -> None:
    program = "import time; print('loading weights'); time.sleep(1000)"
    port = free_port()

    async def check(supervisor: Supervisor) -> None:
        await soon(lambda: bench.seen(Kind.PHASE))
        (state,) = supervisor.snapshot()
        assert (state.state, state.phase, state.healthy) == (State.LOADING, "weights", False)
        assert 0 < state.phases["weights"] < 30

    phases = (Phase("weights", "loading weights"),)
    plan = plan_of(process("decode-0", program, phases=phases, health=Http("127.0.0.1", port, "/")))
    assert supervised(bench, plan, check)[0] is Exit.OK


def test_a_stopped_process_is_dead_when_the_others_run(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        os.kill(pid_of(supervisor, "decode-0"), signal.SIGSTOP)
        await soon(lambda: bench.seen(Kind.HEALTHY, "decode-0", 2))
        (hung,) = bench.of(Kind.HUNG)
        assert "SIGSTOP" in hung.detail
        assert bench.of(Kind.UNHEALTHY)[0].process == "decode-0"

    assert supervised(bench, plan_of(server("decode-0"), server("decode-1")), check)[0] is Exit.OK


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_stopped_process_that_nobody_is_sent_to_may_go_on_for_a_while(bench: Bench, goes_on: bool) -> None:
    aside: list[str] = []
    watch = dataclasses.replace(QUICK, dead_s=LIMIT_S if goes_on else 0.3)

    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        pid = pid_of(supervisor, "decode-0")
        os.kill(pid, signal.SIGSTOP)
        await soon(lambda: aside)
        if goes_on:
            await asyncio.sleep(3 * QUICK.stopped_s)
            os.kill(pid, signal.SIGCONT)
            await soon(lambda: bench.seen(Kind.RECOVERED, "decode-0"))
            assert pid_of(supervisor, "decode-0") == pid
        else:
            await soon(lambda: bench.seen(Kind.HEALTHY, "decode-0", 2))
        assert len(bench.of(Kind.HUNG)) == (not goes_on)
        assert aside == ["decode-0"]

    def on_stopped(process: Process) -> bool:
        aside.append(process.name)
        return True

    plan = plan_of(server("decode-0"), server("decode-1"))
    assert supervised(bench, plan, check, watch=watch, on_stopped=on_stopped)[0] is Exit.OK


def test_a_frozen_machine_is_waited_for(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        pids = [pid_of(supervisor, name) for name in ("decode-0", "decode-1")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await soon(lambda: len(bench.of(Kind.UNHEALTHY)) == 2)
        await asyncio.sleep(10 * QUICK.stopped_s)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        await soon(lambda: len(bench.of(Kind.RECOVERED)) == 2)
        assert [pid_of(supervisor, name) for name in ("decode-0", "decode-1")] == pids

    assert supervised(bench, plan_of(server("decode-0"), server("decode-1")), check)[0] is Exit.OK
    assert not bench.of(Kind.HUNG)


def test_a_process_that_stops_answering_is_dead(bench: Bench) -> None:
    # Answers until it has answered five times, then accepts and says nothing.
    program = (
        HTTP.replace("while True:", "for count in range(1 << 30):")
        .replace("    peer.recv", "    if count > 5: continue\n    peer.recv")
        .replace("continue", "kept = globals().setdefault('kept', []); kept.append(peer); continue")
    )
    port = free_port()

    async def check() -> None:
        plan = plan_of(process("decode-0", program, port, health=Http("127.0.0.1", port, "/")))
        watch = Watch(interval_s=0.02, loading_s=0.02, timeout_s=0.1, failures=3, lag_s=1000.0)
        supervisor = bench.supervisor(plan, policy=OFF, watch=watch)
        assert await supervisor.run() is Exit.PROCESS_FAILED
        assert supervisor.failure is not None
        assert "health probes failed, the last: no answer" in supervisor.failure.reason
        assert [
            event.kind for event in bench.events if event.kind in (Kind.HEALTHY, Kind.UNHEALTHY, Kind.HUNG)
        ] == [
            Kind.HEALTHY,
            Kind.UNHEALTHY,
            Kind.HUNG,
        ]

    run(check())


def test_who_closes_its_health_page_is_left_to_end_by_itself(bench: Bench) -> None:
    # As a worker of Dynamo does on a SIGTERM that somebody else sent: the page goes first, the streams end, then it.
    program = (
        HTTP.replace("while True:", "for count in range(6):") + "server.close(); time.sleep(1.5); sys.exit(0)"
    )
    port = free_port()

    async def check() -> None:
        plan = plan_of(
            process(
                "decode-0",
                program.replace("import os,", "import os, time,"),
                port,
                health=Http("127.0.0.1", port, "/"),
            )
        )
        supervisor = bench.supervisor(plan, policy=OFF)
        assert await supervisor.run() is Exit.PROCESS_FAILED
        (state,) = supervisor.snapshot()
        assert state.last_exit is not None
        assert state.last_exit.code == 0
        assert bench.seen(Kind.UNHEALTHY)
        assert not bench.seen(Kind.HUNG)

    run(check())


def test_a_missing_rank_is_a_death(bench: Bench) -> None:
    program = """
import os, subprocess, sys, time
code = [sys.executable, "-ISc", "import time; time.sleep(1000)", "rank-server"]
ranks = [subprocess.Popen(code) for _ in range(2)]
print("ranks", ranks[0].pid, flush=True)
time.sleep(1000)
"""

    async def check() -> None:
        plan = plan_of(process("prefill-0", program, ranks=Ranks("rank-server$", 2)), process("decode-0"))
        supervisor = bench.supervisor(plan, policy=OFF)
        running = asyncio.create_task(supervisor.run())
        await soon(lambda: bench.pump.last_lines("prefill-0"))
        await asyncio.sleep(5 * QUICK.scan_s)  # both seen, and nothing said of it
        assert not bench.of(Kind.HUNG)
        os.kill(int(bench.pump.last_lines("prefill-0")[0].split()[1]), signal.SIGKILL)
        assert await running is Exit.PROCESS_FAILED
        assert supervisor.failure is not None
        assert supervisor.failure.reason == "1 of 2 ranks are gone"

    run(check())


def test_loading_raises_no_alarm_until_the_start_deadline(bench: Bench) -> None:
    async def check() -> None:
        plan = plan_of(process("decode-0", health=Http("127.0.0.1", free_port(), "/")), start_s=0.5)
        supervisor = bench.supervisor(plan)
        assert await supervisor.run() is Exit.PROCESS_FAILED
        assert supervisor.failure is not None
        assert "not ready after 0.5 s" in supervisor.failure.reason
        assert not bench.of(Kind.UNHEALTHY)
        assert len(bench.of(Kind.STARTED)) == 1

    run(check())


def test_one_goes_ahead_while_the_cache_is_cold(bench: Bench) -> None:
    plan = plan_of(
        *(server(f"decode-{number}", warm_key="decode") for number in range(3)),
        *(server(f"prefill-{number}", warm_key="prefill") for number in range(2)),
        server("frontend"),
    )

    def first(kind: Kind, name: str) -> float:
        return bench.of(kind, name)[0].at

    supervised(bench, plan, nothing, is_cold=lambda key: key == "decode")
    assert first(Kind.STARTED, "decode-1") >= first(Kind.HEALTHY, "decode-0")
    assert first(Kind.STARTED, "decode-2") >= first(Kind.HEALTHY, "decode-0")
    assert first(Kind.STARTED, "prefill-1") < first(Kind.HEALTHY, "decode-0")


def test_stages_drain_in_order_each_with_one_sigterm(bench: Bench) -> None:
    program = """
import os, signal, sys, time
got = []
signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
print("up", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.1)
print("terms", len(got), flush=True)
"""
    stages = {"frontend": 0, "decode-0": 1, "decode-1": 1, "prefill-0": 2, "helper-0": 3}
    plan = plan_of(*(process(name, program, stop_stage=stage) for name, stage in stages.items()), pause_s=0.2)

    async def check(supervisor: Supervisor) -> None:
        await soon(lambda: all(bench.pump.last_lines(name) for name in stages))

    assert supervised(bench, plan, check)[0] is Exit.OK
    assert all(bench.pump.last_lines(name)[-1] == "terms 1" for name in stages)

    def at(kind: Kind, name: str) -> float:
        return bench.of(kind, name)[0].at

    (drain,) = [event for event in bench.of(Kind.DRAINING) if not event.process]
    assert at(Kind.DRAINING, "frontend") - drain.at >= 0.2
    for name, stage in stages.items():
        for other, later in stages.items():
            if stage < later:
                assert at(Kind.EXITED, name) <= at(Kind.DRAINING, other)


DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"


def test_a_drain_deadline_kills_and_says_5(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await soon(lambda: bench.pump.last_lines("decode-0"))

    plan = plan_of(
        process("decode-0", DEAF, stop=Stop(leader_s=1000.0)), process("decode-1"), drain_s={"decode": 0.1}
    )
    assert supervised(bench, plan, check)[0] is Exit.KILLED
    assert bench.seen(Kind.KILLED, "decode-0")
    assert bench.seen(Kind.DRAINED, "decode-1")


def test_what_is_still_loading_is_not_waited_for_as_long_and_nothing_is_lost_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that loads hears no SIGTERM: its event loop waits for it."""
    monkeypatch.setattr("launcher.supervise.worker.UNREADY", Stop(leader_s=0.2, group=True, group_s=0.1))

    async def check(supervisor: Supervisor) -> None:
        await soon(lambda: bench.pump.last_lines("decode-0"))

    deaf = process("decode-0", DEAF, stop=Stop(leader_s=1000.0), health=Http("127.0.0.1", 9, "/health"))
    assert supervised(bench, plan_of(deaf), check)[0] is Exit.OK
    (end,) = bench.of(Kind.KILLED, "decode-0")
    assert "loading" in end.detail


def test_kill_ends_all_at_once(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await soon(lambda: bench.pump.last_lines("frontend") and bench.pump.last_lines("decode-0"))
        supervisor.stop()
        await soon(lambda: bench.seen(Kind.DRAINING, "frontend"))
        assert not bench.seen(Kind.DRAINING, "decode-0")
        supervisor.kill()

    plan = plan_of(process("frontend", DEAF), process("decode-0", DEAF, stop_stage=1))
    assert supervised(bench, plan, check)[0] is Exit.KILLED


def test_kill_during_the_pause(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        supervisor.stop()
        await soon(lambda: bench.seen(Kind.DRAINING))
        supervisor.kill()

    assert supervised(bench, plan_of(process("decode-0"), pause_s=1000.0), check)[0] is Exit.KILLED


def test_stop_while_a_worker_waits_for_its_restart(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        os.kill(pid_of(supervisor, "decode-0"), signal.SIGKILL)
        await soon(lambda: bench.seen(Kind.RESTARTING))

    policy = RestartPolicy(first_s=1000.0, max_s=1000.0)
    assert supervised(bench, plan_of(process("decode-0")), check, policy=policy)[0] is Exit.OK


def test_a_death_while_draining_is_no_failure(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        supervisor.stop()
        await soon(lambda: bench.seen(Kind.DRAINING))
        os.kill(pid_of(supervisor, "decode-0"), signal.SIGKILL)
        await soon(lambda: bench.seen(Kind.EXITED))

    code, _ = supervised(bench, plan_of(process("decode-0"), pause_s=1.0), check)
    assert code is Exit.OK
    assert len(bench.of(Kind.STARTED)) == 1


def test_rolling_restart_goes_one_by_one_outside_the_budget(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        assert await supervisor.rolling_restart()
        assert [state.restarts for state in supervisor.snapshot()] == [0, 1, 1]
        assert supervisor.healthy
        assert await supervisor.rolling_restart(["frontend"])
        with pytest.raises(KeyError):
            await supervisor.rolling_restart(["nobody"])

    plan = plan_of(server("frontend"), server("decode-0"), server("prefill-0"))
    assert supervised(bench, plan, check, policy=RestartPolicy(budget=0))[0] is Exit.OK
    assert bench.of(Kind.HEALTHY, "decode-0")[1].at <= bench.of(Kind.DRAINING, "prefill-0")[0].at
    assert not bench.of(Kind.FAILED)


def test_a_frontend_comes_back_at_once_on_its_port(bench: Bench) -> None:
    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        os.kill(pid_of(supervisor, "frontend"), signal.SIGKILL)
        await soon(lambda: bench.seen(Kind.HEALTHY, "frontend", 2))
        (restart,) = bench.of(Kind.RESTARTING)
        assert restart.seconds == 0.0

    policy = RestartPolicy(first_s=1000.0, max_s=1000.0)
    assert supervised(bench, plan_of(server("frontend")), check, policy=policy)[0] is Exit.OK


def test_a_look_that_fails_is_said_and_the_next_one_is_taken(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = procfs.scan
    failed: list[int] = []

    def no_descriptors() -> dict[int, procfs.Proc]:
        if len(failed) < 3:
            failed.append(1)
            raise OSError(24, "Too many open files", "/proc")
        return scan()

    async def check(supervisor: Supervisor) -> None:
        await ready(supervisor)
        monkeypatch.setattr(procfs, "scan", no_descriptors)
        await soon(lambda: len(failed) == 3)
        await asyncio.sleep(3 * QUICK.scan_s)
        os.kill(pid_of(supervisor, "decode-0"), signal.SIGKILL)
        await soon(lambda: bench.seen(Kind.HEALTHY, "decode-0", 2))

    assert supervised(bench, plan_of(server("decode-0"), server("decode-1")), check)[0] is Exit.OK
    assert bench.output().count("cannot look at the processes: [Errno 24] Too many open files") == 3


def test_zombies_of_orphans_are_reaped_while_running(bench: Bench) -> None:
    # Every 10 ms a grandchild that is orphaned at once and ends soon after.
    program = """
import os, time
print("up", flush=True)
while True:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.wait()
    time.sleep(0.01)
"""

    def zombies() -> int:
        from launcher.supervise import procfs

        mine = os.getsid(0)
        return sum(p.ppid == os.getpid() and p.dead and p.sid != mine for p in procfs.scan().values())

    async def check(supervisor: Supervisor) -> None:
        counts = []
        for _ in range(20):
            await asyncio.sleep(0.1)
            counts.append(zombies())
        assert max(counts) < 60
        assert min(counts[5:]) < 15

    assert supervised(bench, plan_of(process("decode-0", program)), check)[0] is Exit.OK
    assert zombies() == 0


SHARES = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
kept = mmap.mmap(fd, 4096)
print("up", flush=True)
time.sleep(1000)
"""


def test_shared_memory_of_a_killed_process_goes_unless_another_uses_it(bench: Bench) -> None:
    own, common = (Path(f"/dev/shm/supervise-{uuid.uuid4().hex}") for _ in range(2))
    two = SHARES.replace("kept", "other").replace("argv[1]", "argv[2]").replace("time.sleep(1000)", "")
    again = process("decode-0")

    async def check(supervisor: Supervisor) -> None:
        await soon(lambda: bench.pump.last_lines("decode-0") and bench.pump.last_lines("decode-1"))
        await supervisor._note_segments()
        os.kill(pid_of(supervisor, "decode-0"), signal.SIGKILL)
        await soon(lambda: bench.seen(Kind.STARTED, "decode-0", 2))
        assert not own.exists()
        assert common.exists()

    plan = plan_of(
        process("decode-0", two + SHARES, str(own), str(common)), process("decode-1", SHARES, str(common))
    )
    try:
        supervised(bench, plan, check, respawn=lambda process, number: again)
        assert not common.exists()  # nobody is left who uses it
    finally:
        own.unlink(missing_ok=True)
        common.unlink(missing_ok=True)


def test_events_as_json(bench: Bench) -> None:
    async def check() -> None:
        await bench.supervisor(plan_of(process("decode-0", "raise SystemExit(9)")), policy=OFF).run()

    run(check())
    exits = [event.to_json() for event in bench.events if event.kind is Kind.EXITED]
    assert exits[0]["exit"]["text"] == "exit code 9"
    assert exits[0]["process"] == "decode-0"
    assert "seconds" not in exits[0]
    assert str(Event(Kind.DRAINING)) == "draining"


def test_python_helper_is_isolated() -> None:
    assert "-I" in python("pass")
