from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from launcher.supervise.lines import CUT, LineSplitter


def split(*chunks: bytes, max_line: int = 1 << 20, progress_s: float = 5.0, step_s: float = 0.0) -> list[str]:
    splitter = LineSplitter(max_line, progress_s)
    lines: list[str] = []
    for number, chunk in enumerate(chunks):
        lines += splitter.feed(chunk, 100.0 + number * step_s)
    return lines + splitter.end()


def test_lines_are_whole_whatever_the_chunks() -> None:
    assert split(b"on", b"e\ntw", b"o\n\nthree\n") == ["one", "two", "", "three"]


def test_an_unfinished_line_comes_at_the_end() -> None:
    assert split(b"one\ntwo") == ["one", "two"]


def test_a_character_may_be_cut_by_a_chunk() -> None:
    euro = "€".encode()
    assert split(euro[:1], euro[1:] + b"\n") == ["€"]


def test_bytes_that_are_no_utf8_are_shown() -> None:
    assert split(b"a\xff\xfeb\n") == [r"a\xff\xfeb"]


def test_windows_line_ends() -> None:
    assert split(b"one\r\ntwo\r", b"\nthree\r\n") == ["one", "two", "three"]


def test_of_a_progress_bar_the_last_state_counts() -> None:
    assert split(b"\r 10%\r 50%\r100%\ndone\n") == ["100%", "done"]


def test_progress_is_shown_while_it_runs_but_not_too_often() -> None:
    chunks = [b"\r%3d%%" % percent for percent in range(100)]
    lines = split(*chunks, b"\n", step_s=0.5)
    assert 9 <= len(lines) <= 12
    assert lines[-1] == " 99%"


def test_a_bar_that_clears_itself_leaves_its_last_state() -> None:
    assert split(b"\r100%\r     \r\nnext\n") == ["100%", "next"]


def test_a_megabyte_passes_whole() -> None:
    line = b"x" * 1_000_000
    assert split(*(line[at : at + 65536] for at in range(0, len(line), 65536)), b"\n") == [line.decode()]


def test_a_longer_line_is_cut_with_a_mark_and_loses_nothing() -> None:
    line = "é" * 50_000
    data = line.encode() + b"\nnext\n"
    pieces = split(*(data[at : at + 4096] for at in range(0, len(data), 4096)), max_line=10_000)
    assert pieces.pop() == "next"
    assert len(pieces) > 5
    assert all(piece.startswith(CUT) for piece in pieces[1:])
    assert all(piece.endswith(CUT) for piece in pieces[:-1])
    assert "".join(piece.replace(CUT, "") for piece in pieces) == line


def test_memory_is_bounded_for_a_line_that_never_ends() -> None:
    splitter = LineSplitter(max_line=1000)
    for _ in range(1000):
        splitter.feed(b"y" * 1000, 0.0)
        assert len(splitter._tail) <= 1000
    bar = LineSplitter(max_line=1000)
    for number in range(1000):
        bar.feed(b"\r%d" % number * 20, 0.0)
        assert len(bar._tail) <= 1000


@given(
    st.binary(max_size=300).filter(lambda data: b"\r" not in data), st.lists(st.integers(1, 40), min_size=1)
)
def test_chunks_make_no_difference(data: bytes, sizes: list[int]) -> None:
    chunks, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        chunks.append(data[at : at + size])
        at, turn = at + size, turn + 1
    expected = data.decode("utf-8", "backslashreplace").split("\n")
    if expected[-1] == "":
        expected.pop()
    assert split(*chunks) == expected
