from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from launcher.plan.model import Process, Stop
from launcher.supervise.child import Child, environment
from launcher.supervise.events import ExitInfo
from launcher.supervise.tree import MARKER
from tests.supervise.conftest import alive, process, run, soon

IGNORES_TERM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(1000)
"""

COUNTS_TERM = """
import os, signal, sys, time
count = 0
def term(number, frame):
    global count
    count += 1
signal.signal(signal.SIGTERM, term)
print("up", flush=True)
until = time.monotonic() + float(sys.argv[1])
while not count or time.monotonic() < until:
    time.sleep(0.02)
    if count and sys.argv[1] == "0":
        break
os._exit(40 + count)
"""

# The leader starts a grandchild as `sys.argv[1]` says and prints its pid.
PARENT = """
import os, signal, sys, time
how = sys.argv[1]
read, write = os.pipe()
if os.fork() == 0:
    if how in ("setsid", "daemon"):
        os.setsid()
    if how == "daemon" and os.fork():
        os._exit(0)
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "bare":
        os.setsid()
        os.write(write, b"%d" % os.getpid())
        os.execve(sys.executable, [sys.executable, "-ISc", "import time; time.sleep(1000)"], {})
    os.write(write, b"%d" % os.getpid())
    time.sleep(1000)
grandchild = os.read(read, 100).decode()
if how == "joins":
    signal.signal(signal.SIGTERM, lambda number, frame: None)
print(grandchild, flush=True)
if how == "joins":
    os.wait()
    os._exit(0)
time.sleep(1000)
"""


def gone(pid: int) -> bool:
    """Ended and reaped."""
    return not Path(f"/proc/{pid}").exists()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().split()[2]


def start(program: Process, **more: object) -> Child:
    return Child.spawn(program, marker="run/name/0", **more)  # type: ignore[arg-type]


async def first_line(child: Child) -> str:
    """The first line of the child's stdout; both pipes are closed when the test ends."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(child.stdout, "rb"))
    os.close(child.stderr)
    return (await reader.readline()).decode().strip()


async def ended(child: Child, settle_s: float = 0.0) -> ExitInfo:
    info = await child.wait()
    assert info is not None
    assert await child.finish(settle_s) == []
    return info


@pytest.mark.parametrize(
    ("program", "code", "number"),
    [
        ("pass", 0, None),
        ("raise SystemExit(7)", 7, None),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", None, signal.SIGKILL),
    ],
)
def test_the_exit_is_told_as_it_was(program: str, code: int | None, number: int | None) -> None:
    async def check() -> None:
        told: list[ExitInfo] = []
        child = start(process("decode-0", program), on_exit=told.append)
        info = await ended(child)
        assert (info.code, info.signal) == (code, number)
        assert told == [info]
        assert gone(child.pid)

    run(check())


def test_a_program_that_does_not_exist() -> None:
    async def check() -> None:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(FileNotFoundError):
            start(process("decode-0", argv=("/no/such/program",)))
        assert len(os.listdir("/proc/self/fd")) == before

    run(check())


def test_no_descriptor_and_no_zombie_is_left() -> None:
    async def check() -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            child = start(process("decode-0", "pass"))
            await ended(child)
            os.close(child.stdout)
            os.close(child.stderr)
        assert len(os.listdir("/proc/self/fd")) == before

    run(check())


def test_the_environment_is_ours_less_the_scrubbed_plus_the_plan_s() -> None:
    plan = process("decode-0", env={"A": "plan", "SLURM_KEPT": "plan"})
    base = {"A": "ours", "B": "ours", "SLURM_JOB_ID": "1", "PMIX_RANK": "0", MARKER: "outer"}
    assert environment(plan, "run/decode-0/0", ["SLURM_*", "PMI*"], base) == {
        "A": "plan",
        "B": "ours",
        "SLURM_KEPT": "plan",
        MARKER: "run/decode-0/0",
    }


def test_files_are_there_before_the_start_and_private(tmp_path: Path) -> None:
    path = tmp_path / "engines" / "decode.yaml"
    path.parent.mkdir()
    path.write_text("old and longer")
    path.chmod(0o644)

    async def check() -> None:
        child = start(
            process(
                "decode-0",
                "print(open(__import__('sys').argv[1]).read())",
                str(path),
                files={str(path): "x: 1"},
            )
        )
        assert await first_line(child) == "x: 1"
        await ended(child)

    run(check())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_lives_in_a_session_of_its_own_and_reads_nothing() -> None:
    async def check() -> None:
        program = "import os, sys; print(os.getsid(0) == os.getpid() == os.getpgrp(), repr(sys.stdin.read()))"
        child = start(process("decode-0", program))
        assert await first_line(child) == "True ''"
        await ended(child)

    run(check())


def test_one_sigterm_and_time_to_end() -> None:
    async def check() -> None:
        child = start(process("decode-0", COUNTS_TERM, "0"))
        await first_line(child)
        assert await child.stop(Stop(leader_s=30.0, group=True, group_s=30.0))
        assert (await ended(child)).code == 41

    run(check())


def test_a_second_sigterm_goes_to_the_rest_of_the_group_only() -> None:
    async def check() -> None:
        child = start(process("decode-0", PARENT, "joins"))
        grandchild = int(await first_line(child))
        assert await child.stop(Stop(leader_s=0.2, group=True, group_s=30.0))
        assert (await ended(child)).code == 0
        assert not alive(grandchild)

    run(check())


def test_what_ignores_sigterm_is_killed_at_the_deadline() -> None:
    async def check() -> None:
        child = start(process("decode-0", IGNORES_TERM))
        await first_line(child)
        assert not await child.stop(Stop(leader_s=30.0), bound_s=0.1)
        info = await ended(child)
        assert info.signal == signal.SIGKILL
        assert child.killed

    run(check())


def test_a_stopped_process_ends_on_sigterm_too() -> None:
    async def check() -> None:
        child = start(process("decode-0", COUNTS_TERM, "0"))
        await first_line(child)
        child.signal(signal.SIGSTOP)
        await soon(lambda: state_of(child.pid) == "T")
        assert await child.stop(Stop(leader_s=30.0))
        assert (await ended(child)).code == 41

    run(check())


@pytest.mark.parametrize("how", ["plain", "setsid", "daemon", "deaf"])
def test_a_killed_leader_takes_its_tree_along(how: str) -> None:
    async def check() -> None:
        child = start(process("decode-0", PARENT, how))
        grandchild = int(await first_line(child))
        os.kill(child.pid, signal.SIGKILL)
        await ended(child)
        assert gone(grandchild)

    run(check())


@pytest.mark.parametrize("how", ["setsid", "deaf"])
def test_after_a_clean_stop_nothing_is_left_either(how: str) -> None:
    async def check() -> None:
        child = start(process("decode-0", PARENT, how))
        grandchild = int(await first_line(child))
        assert await child.stop(Stop(leader_s=30.0))
        await ended(child, settle_s=0.1)
        assert gone(grandchild)

    run(check())


def test_a_look_while_it_lives_finds_even_what_hides_its_environment() -> None:
    async def check() -> None:
        child = start(process("decode-0", PARENT, "bare"))
        grandchild = int(await first_line(child))
        await soon(lambda: grandchild in [proc.pid for proc in child.tree.look()])
        os.kill(child.pid, signal.SIGKILL)
        await ended(child)
        assert gone(grandchild)

    run(check())


def test_trees_of_two_children_are_apart() -> None:
    async def check() -> None:
        one, two = (
            start(process("decode-0", PARENT, "daemon")),
            Child.spawn(process("decode-1", PARENT, "daemon"), marker="run/decode-1/0"),
        )
        below = [int(await first_line(child)) for child in (one, two)]
        one.kill()
        await ended(one)
        assert not alive(below[0])
        assert alive(below[1])
        assert alive(two.pid)
        two.kill()
        await ended(two)
        assert not alive(below[1])

    run(check())


def test_a_shower_of_forks_is_ended() -> None:
    program = """
import os, time
print("up", flush=True)
while True:
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    time.sleep(0.001)
"""

    async def check() -> None:
        child = start(process("decode-0", program))
        await first_line(child)
        await asyncio.sleep(0.1)
        child.kill()
        await ended(child)
        marked = b"run/name/0"
        assert not [
            pid
            for pid in os.listdir("/proc")
            if pid.isdigit() and pid != str(os.getpid()) and marked in environ(pid)
        ]

    def environ(pid: str) -> bytes:
        try:
            return Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return b""

    run(check())
