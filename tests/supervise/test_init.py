from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.supervise.init import TITLE
from tests.supervise.conftest import LIMIT_S, alive, eventually

DRIVER = str(Path(__file__).with_name("driver.py"))
SLEEPS = "import os, time; os.write(1, b'here %d\\n' % os.getpid()); time.sleep(1000)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPS
FAMILY = """
import os, signal, time
for how in ("plain", "setsid", "daemon", "deaf"):
    if os.fork() == 0:
        if how != "plain":
            os.setsid()
        if how == "daemon" and os.fork():
            os._exit(0)
        if how == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b"here %d\\n" % os.getpid())
        time.sleep(1000)
os.write(1, b"here %d\\n" % os.getpid())
time.sleep(1000)
"""
"""A process with four descendants that are hard to get rid of."""


class Run:
    """A driver under its init, with its output."""

    def __init__(
        self, tmp_path: Path, options: dict[str, Any], prefix: tuple[str, ...] = (), **more: Any
    ) -> None:
        self.path = tmp_path / f"out-{uuid.uuid4().hex}"
        self.tag = uuid.uuid4().hex
        with self.path.open("wb") as out:
            # The tests themselves may run under nohup.
            more.setdefault("preexec_fn", lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
            self.outer = subprocess.Popen(
                [*prefix, sys.executable, DRIVER, json.dumps(options)],
                stdout=more.pop("stdout", out),
                stderr=subprocess.STDOUT,
                env={**os.environ, "SUPERVISE_TEST": self.tag},
                **more,
            )

    def text(self) -> str:
        return self.path.read_text()

    def until(self, words: str, count: int = 1) -> str:
        eventually(lambda: self.text().count(words) >= count or self.outer.poll() is not None, words)
        assert self.text().count(words) >= count, self.text()
        return self.text()

    def pids(self, count: int) -> list[int]:
        return [int(pid) for pid in re.findall(r"here (\d+)$", self.until(" here ", count), re.M)]

    @property
    def inner(self) -> int:
        (pid,) = re.findall(r"inner (\d+)", self.until("inner "))
        return int(pid)

    def wait(self) -> int:
        return self.outer.wait(LIMIT_S)

    def left(self) -> list[int]:
        """Whatever was started under this run and still lives."""
        tag = f"SUPERVISE_TEST={self.tag}".encode()
        return [
            int(name)
            for name in os.listdir("/proc")
            if name.isdigit() and alive(int(name)) and tag in env(name)
        ]


def env(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(options: dict[str, Any], *prefix: str, **more: Any) -> Run:
        runs.append(Run(tmp_path, options, prefix, **more))
        return runs[-1]

    yield make
    for run in runs:
        for pid in run.left():
            os.kill(pid, signal.SIGKILL)
        run.outer.wait()


@pytest.mark.parametrize("code", [0, 2, 4, 5])
def test_exit_codes_pass_through(start: Callable[..., Run], code: int) -> None:
    assert start({"exit": code}).wait() == code


def test_death_by_signal_is_128_and_its_number(start: Callable[..., Run]) -> None:
    assert start({"signal": signal.SIGKILL}).wait() == 137
    assert start({"signal": signal.SIGSEGV}).wait() == 139


def test_what_is_in_custody_goes(start: Callable[..., Run], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "deep").mkdir(parents=True)
    segment = Path(f"/dev/shm/supervise-{uuid.uuid4().hex}")
    segment.write_bytes(b"x" * 4096)
    assert start({"exit": 0, "folder": str(folder), "segment": str(segment)}).wait() == 0
    assert not folder.exists()
    assert not segment.exists()


def test_a_segment_that_somebody_else_uses_stays(start: Callable[..., Run]) -> None:
    import mmap

    segment = Path(f"/dev/shm/supervise-{uuid.uuid4().hex}")
    segment.write_bytes(b"x" * 4096)
    try:
        with segment.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
            assert start({"exit": 0, "segment": str(segment)}).wait() == 0
            assert segment.exists()
    finally:
        segment.unlink()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_request_to_stop_is_forwarded_once(start: Callable[..., Run], number: signal.Signals) -> None:
    run = start({"programs": {"decode-0": SLEEPS}})
    run.pids(1)
    run.outer.send_signal(number)
    assert run.wait() == 0
    assert run.text().count(f"stopping: {number.name}") == 1
    assert not run.left()


def test_signals_to_both_at_once_are_one_request(start: Callable[..., Run]) -> None:
    run = start(
        {"programs": {"decode-0": "import signal, time; signal.signal(15, lambda *a: None)\n" + SLEEPS}}
    )
    run.pids(1)
    inner = run.inner
    os.kill(inner, signal.SIGTERM)
    run.outer.send_signal(signal.SIGTERM)
    run.until("decode-0 draining")
    assert "second request" not in run.text()


def test_a_second_request_kills_and_says_5(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": DEAF}})
    run.pids(1)
    run.outer.send_signal(signal.SIGTERM)
    run.until("decode-0 draining")

    def again() -> bool:
        run.outer.send_signal(signal.SIGTERM)
        return "second request" in run.text()

    eventually(again)
    assert run.wait() == 5
    assert not run.left()


def test_sigquit_kills_at_once(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": DEAF}})
    run.pids(1)
    run.outer.send_signal(signal.SIGQUIT)
    assert run.wait() == 5


def test_user_signals_end_nothing(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": SLEEPS}})
    run.pids(1)
    run.outer.send_signal(signal.SIGUSR1)
    run.until(f"user signal {int(signal.SIGUSR1)}")
    run.outer.send_signal(signal.SIGWINCH)
    run.outer.terminate()
    assert run.wait() == 0


def test_nohup_is_respected(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": SLEEPS}}, "nohup")
    run.pids(1)
    run.outer.send_signal(signal.SIGHUP)
    run.outer.send_signal(signal.SIGUSR1)
    run.until("user signal")
    assert "stopping" not in run.text()
    run.outer.terminate()
    assert run.wait() == 0


def test_nothing_is_left_after_a_stop(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": FAMILY, "decode-1": FAMILY}})
    run.pids(10)
    run.outer.terminate()
    assert run.wait() == 0
    assert not run.left()


def test_nothing_is_left_when_the_outer_is_killed(start: Callable[..., Run], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    run = start({"programs": {"decode-0": FAMILY, "decode-1": DEAF}, "folder": str(folder)})
    run.pids(6)
    run.outer.kill()
    eventually(lambda: not run.left())
    eventually(lambda: not folder.exists())


def test_nothing_is_left_when_the_outer_is_killed_and_the_loop_is_stuck(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": FAMILY}, "hang": True})
    run.pids(5)
    run.until("hanging")
    run.outer.kill()
    eventually(lambda: not run.left())


def test_nothing_is_left_when_the_inner_is_killed(start: Callable[..., Run], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    run = start({"programs": {"decode-0": FAMILY, "decode-1": DEAF}, "folder": str(folder)})
    run.pids(6)
    os.kill(run.inner, signal.SIGKILL)
    assert run.wait() == 137
    assert not run.left()
    assert not folder.exists()
    (count,) = re.findall(
        r"^serve-init: the launcher was killed by SIGKILL; (\d+) processes ended$", run.text(), re.M
    )
    assert int(count) >= 6


def test_in_a_json_run_both_say_it_in_json(start: Callable[..., Run]) -> None:
    killed = start({"programs": {"decode-0": SLEEPS}, "json": True})
    killed.pids(1)
    os.kill(killed.inner, signal.SIGKILL)
    assert killed.wait() == 137
    orphaned = start({"programs": {"decode-0": SLEEPS}, "json": True})
    orphaned.pids(1)
    orphaned.outer.kill()
    eventually(lambda: not orphaned.left())
    for run, said in ((killed, "was killed by SIGKILL"), (orphaned, "the init process is gone")):
        (line,) = [json.loads(line) for line in run.text().splitlines() if said in line]
        assert (line["process"], line["level"]) == ("launcher", "error")


def test_direct_children_die_even_when_both_are_killed_at_once(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": SLEEPS, "decode-1": DEAF}})
    run.pids(2)
    inner = run.inner
    os.kill(inner, signal.SIGSTOP)
    run.outer.send_signal(signal.SIGSTOP)
    os.kill(inner, signal.SIGKILL)
    run.outer.kill()
    eventually(lambda: not run.left())


def test_a_freeze_of_everything_harms_nothing(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": SLEEPS, "decode-1": SLEEPS, "frontend": SLEEPS}})
    pids = run.pids(3)
    frozen = [run.outer.pid, run.inner, *pids]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5)
    for pid in frozen:  # the launcher goes on first and finds the others still stopped
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
    time.sleep(1.0)
    run.outer.terminate()
    assert run.wait() == 0
    assert "hung" not in run.text()
    assert run.text().count("started") == 3


def test_the_two_layers_do_not_look_the_same(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": SLEEPS}})
    run.pids(1)
    eventually(lambda: b"driver" not in Path(f"/proc/{run.outer.pid}/cmdline").read_bytes())
    assert Path(f"/proc/{run.outer.pid}/cmdline").read_bytes().startswith(TITLE.encode())
    assert Path(f"/proc/{run.outer.pid}/comm").read_text().strip() == TITLE
    assert b"driver" in Path(f"/proc/{run.inner}/cmdline").read_bytes()
    run.outer.terminate()
    assert run.wait() == 0


def test_the_outer_stays_small(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": SLEEPS}})
    run.pids(1)
    status = Path(f"/proc/{run.outer.pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    assert int(kilobytes) < 30_000
    assert re.findall(r"Threads:\s+(\d+)", status) == ["1"]
    run.outer.terminate()
    assert run.wait() == 0


needs_namespaces = pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.call(["unshare", "--pid", "--fork", "--mount-proc", "true"]) != 0,
    reason="needs the right to make a PID namespace",
)


@needs_namespaces
def test_as_pid_1_sigterm_stops_and_zombies_are_reaped(start: Callable[..., Run]) -> None:
    orphans = (
        "import os, time\nfor n in range(50):\n  if os.fork() == 0:\n    os.setsid(); os._exit(0)\n" + SLEEPS
    )
    run = start(
        {"programs": {"decode-0": FAMILY, "decode-1": orphans}}, "unshare", "--pid", "--fork", "--mount-proc"
    )
    run.pids(6)
    (unshare,) = [run.outer.pid]
    (init,) = [pid for pid in run.left() if parent(pid) == unshare]
    assert ids(init)[-1] == 1
    os.kill(init, signal.SIGTERM)
    assert run.wait() == 0
    assert "stopping: SIGTERM" in run.text()
    assert not run.left()


@needs_namespaces
def test_as_pid_1_the_end_of_the_inner_is_the_end(start: Callable[..., Run]) -> None:
    run = start({"programs": {"decode-0": FAMILY}}, "unshare", "--pid", "--fork", "--mount-proc")
    run.pids(5)
    (inner,) = [pid for pid in run.left() if ids(pid)[-1] == run.inner]
    os.kill(inner, signal.SIGKILL)
    assert run.wait() == 137
    assert not run.left()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def ids(pid: int) -> list[int]:
    """The pids of a process in all its namespaces, the innermost last."""
    status = Path(f"/proc/{pid}/status").read_text()
    (found,) = re.findall(r"NSpid:\s+(.*)", status)
    return [int(number) for number in found.split()]


def test_a_terminal_s_ctrl_c_reaches_the_launcher_once(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    options = {"programs": {"decode-0": SLEEPS}}

    def take_terminal() -> None:
        import fcntl
        import termios

        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    run = Run(tmp_path, options, stdin=theirs, stdout=theirs, preexec_fn=take_terminal)
    os.close(theirs)
    text = ""

    def read(words: str) -> bool:
        nonlocal text
        try:
            text += os.read(ours, 65536).decode()
        except OSError:
            return True
        return words in text

    eventually(lambda: read("| ") and " here " in text)
    assert "terminal True" in text
    os.write(ours, b"\x03")
    eventually(lambda: read("decode-0 drained"))
    assert run.wait() == 0
    assert text.count("stopping: SIGINT") == 1
    assert not run.left()
    os.close(ours)
