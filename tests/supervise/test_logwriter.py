from __future__ import annotations

import os
import threading
import time

from launcher.supervise.logwriter import LogWriter
from tests.supervise.conftest import LIMIT_S, eventually


def drain(fd: int, into: list[bytes]) -> threading.Thread:
    """Read a pipe to its end in a thread."""

    def read() -> None:
        while data := os.read(fd, 65536):
            into.append(data)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_all_is_written_in_order() -> None:
    read, write = os.pipe()
    got: list[bytes] = []
    reader = drain(read, got)
    writer = LogWriter(write)
    for number in range(5000):
        writer.put(f"{number}\n", 1)
    writer.close(LIMIT_S)
    os.close(write)
    reader.join()
    os.close(read)
    assert b"".join(got).split() == [b"%d" % number for number in range(5000)]


def test_a_reader_that_is_slow_but_reads_loses_nothing() -> None:
    read, write = os.pipe()
    writer = LogWriter(write, limit=200_000, patience_s=LIMIT_S, floor=1)
    got: list[bytes] = []

    def slowly() -> None:
        while data := os.read(read, 20_000):
            got.append(data)
            time.sleep(0.001)

    reader = threading.Thread(target=slowly)
    reader.start()
    for _ in range(200):
        writer.put("x" * 9_999 + "\n", 1)
    writer.close(LIMIT_S)
    os.close(write)
    reader.join()
    os.close(read)
    assert sum(map(len, got)) == 2_000_000
    assert writer.dropped == 0


def test_a_reader_that_stops_costs_one_wait_and_is_told_what_it_missed() -> None:
    read, write = os.pipe()
    writer = LogWriter(write, limit=200_000, patience_s=0.2, floor=1000)
    began = time.monotonic()
    for _ in range(1000):
        writer.put("x" * 999 + "\n", 1)
    assert time.monotonic() - began < 10  # one patience, not a thousand
    dropped = writer.dropped
    assert 600 < dropped < 1000

    got: list[bytes] = []
    reader = drain(read, got)
    eventually(lambda: writer.flush(0.01))
    writer.put("after\n", 1)
    writer.close(LIMIT_S)
    os.close(write)
    reader.join()
    os.close(read)
    lines = b"".join(got).decode().splitlines()
    assert lines[-2:] == [f"{dropped} lines dropped, stdout slow", "after"]
    assert len(lines) == 1000 - dropped + 2


def test_one_who_must_not_wait_does_not() -> None:
    read, write = os.pipe()
    writer = LogWriter(write, limit=100_000, patience_s=LIMIT_S)
    began = time.monotonic()
    for _ in range(300):
        writer.put("x" * 999 + "\n", 1, wait=False)
    assert time.monotonic() - began < 10
    assert writer.dropped > 0
    os.close(read)
    writer.close(0.1)
    os.close(write)


def test_a_closed_stdout_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    writer = LogWriter(write)
    writer.put("one\n", 1)
    eventually(lambda: writer.lost)
    for _ in range(20_000):
        writer.put("x" * 999 + "\n", 1)
    writer.close()
    os.close(write)


def test_a_stdout_that_somebody_made_nonblocking() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    writer = LogWriter(write)
    writer.put("x" * 300_000 + "\n", 1)
    got: list[bytes] = []
    reader = drain(read, got)
    writer.close(LIMIT_S)
    os.close(write)
    reader.join()
    os.close(read)
    assert sum(map(len, got)) == 300_001
