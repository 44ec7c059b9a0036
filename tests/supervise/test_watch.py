from __future__ import annotations

import asyncio
import os
import time

import pytest

from launcher.plan.model import Http, Phase, Ranks
from launcher.supervise import procfs
from launcher.supervise.logwatch import LineWatch
from launcher.supervise.procfs import Proc
from launcher.supervise.watch import Lag, RankCount, Starvation, Strikes, Watch, probe
from tests.supervise.conftest import free_port, run


async def ask(answer: bytes | None, timeout_s: float = 5.0) -> str:
    """Probe a server that gives this answer; None: it never does."""
    requests: list[bytes] = []
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is None:
            await done.wait()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        result = await probe(Http("127.0.0.1", port, "/health"), timeout_s)
        assert requests[0].startswith(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port)
        return result
    finally:
        done.set()
        server.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.0 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 100_000, ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "answered 503"),
        (b"HTTP/1.1 301 Moved\r\n\r\n", "answered 301"),
        (b"220 smtp ready\r\n", "not an http answer"),
        (b"", "closed without an answer"),
        (b"x" * 100_000, "limit"),
    ],
)
def test_probe(answer: bytes, said: str) -> None:
    result = run(ask(answer))
    assert said in result
    assert bool(said) == bool(result)


def test_probe_of_one_that_never_answers() -> None:
    assert "no answer" in run(ask(None, timeout_s=0.1))


def test_probe_of_nobody() -> None:
    assert "refused" in run(probe(Http("127.0.0.1", free_port(), "/"), 5.0))


def test_strikes_count_only_in_a_row() -> None:
    strikes = Strikes(Watch(failures=3))
    assert [strikes.add(reason) for reason in ("no", "no", "", "no", "no", "no")] == [False] * 5 + [True]


def test_strikes_do_not_count_while_we_are_starved_ourselves() -> None:
    strikes = Strikes(Watch(failures=2, lag_s=1.0))
    assert not any(strikes.add("no", late_s=3.0) for _ in range(10))
    assert [strikes.add("no", late_s=0.1), strikes.add("no", late_s=0.1)] == [False, True]


def test_strikes_of_a_process_without_a_cpu_count_a_quarter() -> None:
    strikes = Strikes(Watch(failures=2))
    assert [strikes.add("no", starved=0.9) for _ in range(8)] == [False] * 7 + [True]


def test_a_late_answer_of_a_starved_process_is_no_illness_yet() -> None:
    strikes = Strikes(Watch())
    assert [strikes.add("late", starved=0.9) or strikes.certain for _ in range(4)] == [
        False,
        False,
        False,
        True,
    ]
    strikes.add("")
    assert not strikes.certain
    strikes.add("late", late_s=5.0)
    assert not strikes.certain
    strikes.add("late")
    assert strikes.certain


def test_starvation_is_the_time_spent_waiting_for_a_cpu() -> None:
    starvation = Starvation(os.getpid())
    assert starvation.share() >= 0.0
    assert Starvation(2**22 + 1).share() == 0.0


def test_lag_sees_that_the_loop_was_held() -> None:
    async def check() -> None:
        lag = Lag(step_s=0.01)
        task = asyncio.create_task(lag.run())
        await asyncio.sleep(0.05)
        time.sleep(0.4)  # noqa: ASYNC251 - that is the point
        await asyncio.sleep(0.05)
        assert lag.recent() > 0.3
        task.cancel()

    run(check())


def test_ranks_are_missed_only_after_all_were_there(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {10: "python -m mpi4py.futures.server", 11: "python -m mpi4py.futures.server", 12: "orted"}
    monkeypatch.setattr(procfs, "cmdline", lambda pid: names[pid])

    def members(*pids: int, state: str = "S") -> list[Proc]:
        return [Proc(pid=pid, start=1, ppid=1, pgid=1, sid=1, state=state) for pid in pids]

    count = RankCount(Ranks(r"mpi4py\.futures\.server", 2))
    assert count.missing(members(10, 12)) == ""
    assert count.missing(members(10, 11, 12)) == ""
    assert count.missing(members(10, 12)) == "1 of 2 ranks are gone"
    assert count.missing([*members(10), *members(11, state="Z")]) == "1 of 2 ranks are gone"


def test_lines_announce_phases_once_and_fatal_messages_always() -> None:
    seen: list[str] = []
    watch = LineWatch(
        ["EngineDeadError", "^out of memory$"],
        [Phase("weights", r"Loading weights"), Phase("graphs", r"Capturing \w+ graphs")],
        seen.append,
        lambda name, line: seen.append(f"{name}: {line}"),
    )
    watch.see(["nothing", "Loading weights took 3 s", "Loading weights again"])
    watch.see(["Loading weights", "Capturing CUDA graphs"])
    watch.see(["x EngineDeadError", "not out of memory yet"])
    watch.see(["first", "out of memory"])
    assert seen == [
        "weights: Loading weights took 3 s",
        "graphs: Capturing CUDA graphs",
        "x EngineDeadError",
        "out of memory",
    ]


def test_a_pid_is_never_mistaken_for_its_successor() -> None:
    me = procfs.look(os.getpid())
    assert me is not None
    other = Proc(me.pid, me.start - 1, me.ppid, me.pgid, me.sid, me.state)
    assert procfs.send(me, 0)
    assert not procfs.send(other, 0)


def test_a_name_with_brackets_and_blanks(tmp_path: object) -> None:
    stat = b"7 (a) b (c)) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 2"
    assert procfs._parse(7, stat) == Proc(pid=7, start=4242, ppid=1, pgid=7, sid=7, state="S")
