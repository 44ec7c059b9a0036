from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launcher.supervise.logfile import RotatingFile
from launcher.supervise.logpump import LogPump
from launcher.supervise.logs import JsonFormat, TextFormat
from launcher.supervise.logwriter import LogWriter
from tests.supervise.conftest import LIMIT_S, eventually, python

FLAT_OUT = """
import os, sys
name, count = sys.argv[1], int(sys.argv[2])
for start in range(0, count, 500):
    os.write(1, b"".join(b"12:00:00 %s %d some words to fill the line with\\n" % (name.encode(), n)
        for n in range(start, start + 500)))
"""


class Pipe:
    """A pump with one pipe into it and a pipe out of it."""

    def __init__(self, pump: LogPump, out: int) -> None:
        self.pump = pump
        self.out = out
        self.ended = threading.Event()

    def add(self, name: str = "decode-0", stream: str = "stderr", **more: object) -> int:
        read, write = os.pipe()
        self.pump.add(name, "decode", stream, read, on_end=self.ended.set, **more)  # type: ignore[arg-type]
        return write

    def feed(self, *chunks: bytes, **more: object) -> None:
        write = self.add(**more)  # type: ignore[arg-type]
        for chunk in chunks:
            os.write(write, chunk)
        os.close(write)
        assert self.ended.wait(LIMIT_S)
        self.ended.clear()

    def text(self) -> str:
        assert self.pump.writer.flush(LIMIT_S)
        return Path(f"/proc/self/fd/{self.out}").read_text()


def make(tmp_path: Path, **more: object) -> Pipe:
    out = os.open(tmp_path / "stdout", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    return Pipe(LogPump(writer=LogWriter(out), **more), out)  # type: ignore[arg-type]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = make(tmp_path)
    yield made
    made.pump.close()
    os.close(made.out)


def test_lines_come_out_once_with_the_name(pipe: Pipe) -> None:
    pipe.feed(b"12:00:00 one\n12:00:01 t", b"wo\n12:00:02 unfinished")
    assert pipe.text().splitlines() == [
        "decode-0 | 12:00:00 one",
        "decode-0 | 12:00:01 two",
        "decode-0 | 12:00:02 unfinished",
    ]


def test_the_last_lines_are_kept_per_process(pipe: Pipe) -> None:
    pipe.feed(b"".join(b"line %d\n" % number for number in range(500)))
    pipe.feed(b"\x1b[31mother\x1b[0m\n", name="decode-1", stream="stdout")
    assert pipe.pump.last_lines("decode-0", 2) == ["line 498", "line 499"]
    assert len(pipe.pump.last_lines("decode-0", 1000)) == 200
    (record,) = pipe.pump.last_records("decode-1")
    assert record[1:] == ("stdout", "other")
    assert pipe.pump.last_lines("nobody") == []


def test_listeners_get_the_lines_without_colours(pipe: Pipe) -> None:
    got: list[str] = []

    def listen(lines: Sequence[str]) -> None:
        got.extend(lines)

    pipe.feed(b"\x1b[1mone\x1b[0m\ntwo\n", on_lines=listen)
    assert got == ["one", "two"]


def test_bad_bytes_and_long_lines_pass(pipe: Pipe) -> None:
    write = pipe.add()

    def write_all() -> None:
        os.write(write, b"y" * 3_000_000 + b"\nok \xff\n")
        os.close(write)

    threading.Thread(target=write_all).start()
    assert pipe.ended.wait(LIMIT_S)
    text = pipe.text()
    assert text.count("y") == 3_000_000
    assert text.count("\n") == 4
    assert text.endswith("ok \\xff\n")


def test_the_launcher_s_own_lines(pipe: Pipe) -> None:
    pipe.pump.log("careful", "warning")
    pipe.pump.log("started")
    first, second = pipe.text().splitlines()
    assert first.startswith("launcher | ")
    assert first.endswith("WARNING careful")
    assert second.endswith("INFO started")


def test_a_pipe_that_somebody_keeps_open_can_be_dropped(pipe: Pipe) -> None:
    read, write = os.pipe()
    source = pipe.pump.add("decode-0", "decode", "stdout", read, on_end=pipe.ended.set)
    os.write(write, b"12:00:00 last words")
    pipe.pump.drop(source)
    assert pipe.ended.wait(LIMIT_S)
    assert pipe.text() == "decode-0 | 12:00:00 last words\n"
    with pytest.raises(BrokenPipeError):
        os.write(write, b"x")
    os.close(write)


def test_closing_takes_what_the_pipes_hold(tmp_path: Path) -> None:
    made = make(tmp_path, form=JsonFormat())
    write = made.add()
    os.write(write, b"one\n")
    made.pump.close()
    assert json.loads(made.text())["message"] == "one"
    os.close(write)
    os.close(made.out)


def test_nine_children_flat_out_lose_nothing(tmp_path: Path) -> None:
    count = 20_000
    made = make(tmp_path, form=TextFormat([f"decode-{number}" for number in range(9)]))
    done = [threading.Event() for _ in range(9)]
    children = []
    for number in range(9):
        read, write = os.pipe()
        name = f"decode-{number}"
        made.pump.add(name, "decode", "stdout", read, on_end=done[number].set)
        children.append(subprocess.Popen(python(FLAT_OUT, name, count), stdout=write))
        os.close(write)
    assert all(event.wait(LIMIT_S) for event in done)
    assert [child.wait() for child in children] == [0] * 9
    made.pump.close(LIMIT_S)
    seen: dict[str, list[int]] = defaultdict(list)
    for line in made.text().splitlines():
        prefix, _, rest = line.partition(" | ")
        _, name, number_text, *_ = rest.split(" ")
        assert prefix.strip() == name
        seen[name].append(int(number_text))
    assert len(seen) == 9
    assert all(numbers == list(range(count)) for numbers in seen.values())
    assert made.pump.lines == 9 * count
    os.close(made.out)


def test_files_keep_what_a_stuck_stdout_drops(tmp_path: Path) -> None:
    stuck_read, stuck_write = os.pipe()
    writer = LogWriter(stuck_write, limit=50_000, patience_s=0.1)
    pump = LogPump(writer=writer, log_dir=tmp_path / "logs")
    ended = threading.Event()
    read, write = os.pipe()
    pump.add("prefill-0", "prefill", "stderr", read, on_end=ended.set)
    child = subprocess.Popen(python(FLAT_OUT, "x", 20_000), stdout=write)
    os.close(write)
    assert ended.wait(LIMIT_S)
    assert child.wait() == 0
    assert writer.dropped > 0
    os.close(stuck_read)
    pump.close()
    os.close(stuck_write)
    lines = (tmp_path / "logs" / "prefill-0.log").read_text().splitlines()
    assert len(lines) == 20_000
    assert lines[-1].startswith("12:00:00 x 19999")


def test_a_log_folder_that_fails_is_said_once_and_stops_nothing(tmp_path: Path) -> None:
    made = make(tmp_path, log_dir=tmp_path / "logs")
    (tmp_path / "logs" / "decode-0.log").mkdir()
    made.feed(b"one\n")
    made.feed(b"two\n")
    made.pump.close()
    text = made.text()
    assert text.count("decode-0.log ends here: ") == 1
    assert "one" in text
    assert "two" in text
    os.close(made.out)


def test_rotation(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", max_bytes=100, keep=2)
    for number in range(20):
        file.write(b"%02d" % number + b"." * 27 + b"\n")
    file.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.log", "a.log.1", "a.log.2"]
    kept = [
        line[:2]
        for name in ("a.log.2", "a.log.1", "a.log")
        for line in (tmp_path / name).read_text().splitlines()
    ]
    assert kept == [f"{number:02d}" for number in range(12, 20)]
    again = RotatingFile(tmp_path / "a.log", max_bytes=100, keep=2)
    again.write(b"appended\n")
    again.close()
    assert (tmp_path / "a.log").read_text().endswith("appended\n")


def test_a_flood_delays_no_one_else(pipe: Pipe) -> None:
    write = pipe.add("decode-1")
    program = "import os\nwhile True: os.write(1, b'x' * 60000 + b'\\n')"
    flood = subprocess.Popen(python(program), stdout=write)
    os.close(write)
    try:
        read, write = os.pipe()
        pipe.pump.add("decode-0", "decode", "stderr", read)
        os.write(write, b"12:00:00 quiet\n")
        os.close(write)
        eventually(lambda: pipe.pump.last_lines("decode-0") == ["12:00:00 quiet"])
    finally:
        flood.kill()
        flood.wait()
