"""The trace maker hits its figures, and the reader says what is wrong with a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.bench.trace import figures, make, read, write
from launcher.bench.trace.model import Row, Shape, ideal_hits
from launcher.cli import main
from launcher.findings import LauncherError

AGENTIC = Shape(requests=3000, isl=65536, osl=400, hit=0.9, active=64)
SMALL = Shape(requests=200, isl=1024, osl=32, hit=0.8, block=64, limit=8192, active=16)


def test_the_agentic_shape_is_met() -> None:
    found = figures.describe(make.make(AGENTIC), AGENTIC.block, AGENTIC.limit)
    assert found.isl_mean == pytest.approx(65536, rel=0.02)
    assert found.hit == pytest.approx(0.9, abs=0.005)
    assert found.osl_mean == pytest.approx(400, rel=0.03)
    assert found.over_limit == found.over_limit_with_output == 0


def test_sessions_may_outgrow_the_limit_as_in_the_published_trace() -> None:
    shape = Shape(requests=3000, isl=65536, osl=400, hit=0.9, active=64, shared=8192, over_limit=True)
    found = figures.describe(make.make(shape), shape.block, shape.limit)
    assert 0.02 < found.over_limit / found.requests < 0.15


def test_a_seed_gives_the_same_file_and_another_seed_another() -> None:
    first, again = (write.text(make.make(SMALL)) for _ in range(2))
    other = write.text(
        make.make(Shape(requests=200, isl=1024, osl=32, hit=0.8, block=64, limit=8192, active=16, seed=1))
    )
    assert first == again
    assert first != other


def test_sessions_grow_and_share_one_prefix() -> None:
    rows = make.make(SMALL)
    shared = SMALL.shared_tokens // SMALL.block
    assert {row.hash_ids[:shared] for row in rows} == {tuple(range(shared))}
    last: dict[str, Row] = {}
    for row in rows:
        assert len(row.hash_ids) == -(-row.input_length // SMALL.block)
        before = last.get(row.session_id)
        if before is not None:
            whole = before.input_length // SMALL.block
            assert row.input_length > before.input_length + before.output_length
            assert row.hash_ids[:whole] == before.hash_ids[:whole]
        last[row.session_id] = row
    # About half a round lies between two turns of a session: with that many requests in flight none waits for another.
    for place in range(1, len(rows)):
        assert rows[place].session_id not in {row.session_id for row in rows[max(0, place - 3) : place]}


def test_a_round_robin_router_is_not_sticky_by_accident() -> None:
    workers: dict[str, set[int]] = {}
    for place, row in enumerate(make.make(SMALL)):
        workers.setdefault(row.session_id, set()).add(place % 4)
    assert max(len(chosen) for chosen in workers.values()) == 4


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        (Shape(requests=10, isl=1000, osl=10, hit=0.99), "half a block"),
        (Shape(requests=10, isl=1000, osl=10, hit=1.0), "hit rate"),
        (Shape(requests=10, isl=200_000, osl=10, hit=0.9), "limit"),
        (Shape(requests=10, isl=8192, osl=10, hit=0.5, shared=8192), "prefix"),
    ],
)
def test_what_cannot_be_had_is_refused(shape: Shape, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        make.make(shape)


def test_ideal_hits_stop_at_the_first_new_block() -> None:
    rows = [Row(100, 1, (0, 1)), Row(100, 1, (0, 2)), Row(120, 1, (0, 1, 3)), Row(100, 1, (9, 1))]
    assert ideal_hits(rows, 50) == [0, 50, 100, 0]


def saved(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def codes(error: LauncherError) -> list[str]:
    return [finding.code for finding in error.findings]


def test_an_lfs_pointer_is_named(tmp_path: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 91234567\n"
    with pytest.raises(LauncherError) as caught:
        read.read(saved(tmp_path / "t.jsonl", text))
    assert codes(caught.value) == ["trace-lfs-pointer"]
    assert "91234567" in caught.value.findings[0].what


def test_a_torn_last_line_is_told_from_a_bad_one(tmp_path: Path) -> None:
    whole = write.text(make.make(SMALL))
    with pytest.raises(LauncherError) as caught:
        read.read(saved(tmp_path / "torn.jsonl", whole[:-40]))
    assert codes(caught.value) == ["trace-torn"]
    assert "line 200" in caught.value.findings[0].what
    with pytest.raises(LauncherError) as caught:
        read.read(saved(tmp_path / "bad.jsonl", "{]\n" + whole))
    assert codes(caught.value) == ["trace-row"]


def test_many_bad_lines_do_not_flood(tmp_path: Path) -> None:
    with pytest.raises(LauncherError) as caught:
        read.read(saved(tmp_path / "t.jsonl", '{"input_length": "x"}\n' * 1000))
    assert len(caught.value.findings) == read.SHOWN + 1
    assert "995 more" in caught.value.findings[-1].what


def line(**fields: object) -> str:
    return json.dumps({"input_length": 600, "output_length": 5, "hash_ids": [1, 2], **fields}) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        line(input_length=-1),
        line(output_length=None),
        line(output_length=True),
        line(hash_ids=["a"]),
        line(hash_ids=3),
        line(session_id=7),
        line(timestamp="soon"),
        "[1]\n",
        "",
        "\n\n",
    ],
)
def test_rows_that_are_no_requests(tmp_path: Path, text: str) -> None:
    with pytest.raises(LauncherError):
        read.read(saved(tmp_path / "t.jsonl", text))


def test_lengths_above_the_limit_and_a_wrong_block_are_told(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.jsonl", line() + line(input_length=601) + line(input_length=598))
    trace = read.read(path, limit=600)
    assert trace.block == 512
    assert [finding.code for finding in trace.findings] == ["trace-over-limit", "trace-over-limit"]
    assert "1 of 3" in trace.findings[0].what
    assert "3 more" in read.read(path, limit=601).findings[0].what
    assert [finding.code for finding in read.read(path, block=64).findings] == ["trace-block"]


def test_the_block_is_worked_out(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write.write(path, write.text(make.make(SMALL)))
    trace = read.read(path)
    assert trace.block == 64
    assert not trace.findings
    assert trace.rows == tuple(make.make(SMALL))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.jsonl"
    words = [
        "trace",
        "make",
        "--target",
        "h200-disagg",
        "--requests",
        "640",
        "--active",
        "16",
        "--out",
        str(path),
    ]
    assert main(words) == 0
    assert "prefix hits" in capsys.readouterr().out
    assert main(["trace", "check", str(path), "--target", "h200-disagg", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 640
    assert main(["trace", "make", "--target", "sim", "--out", str(path)]) == 2
    assert "hit rate" in capsys.readouterr().err
    assert main(["trace", "check", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--requests", "0"], "--requests: 0 is less than the least, 1"),
        (["--block", "0"], "--block: 0 is less than the least, 1"),
        (["--osl", "0"], "--osl: 0 is less than the least, 1"),
        (["--isl", "-1"], "--isl: -1 is less than the least, 1"),
        (["--active", "0"], "--active: 0 is less than the least, 1"),
        (["--limit", "0"], "--limit: 0 is less than the least, 1"),
        (["--seed", "x"], "--seed: 'x' is no whole number"),
        (["--requests", "99999999999"], "more than the most, 1,000,000: a trace is made in memory"),
        (["--active", "99999999999"], "more than the most, 1,000,000: a trace is made in memory"),
        (["--block", "1", "--requests", "10000"], "655360000 hash ids, more than the most, 100,000,000"),
        (["--limit", "3", "--over-limit"], "no room for a session"),
    ],
)
def test_a_number_out_of_range_is_not_taken_for_the_default(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.jsonl"
    assert main(["trace", "make", "--target", "h200-disagg", "--out", str(out), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not out.exists()


def test_check_blames_no_option_that_it_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("", "/nonexistent"):
        assert main(["trace", "check", name]) == 2
        assert "(set in the command line)" in capsys.readouterr().err


def test_a_bench_says_before_its_start_that_its_trace_cannot_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "--target", "h200-disagg", "--aiperf", "/bin/true", "--out", str(tmp_path / "out")]
    assert main([*words, "--sweep", "64,100000"]) == 2
    assert "no trace of 4000000 requests can be made" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench --ready-timeout nan", "--ready-timeout: 'nan' is no number"),
        ("bench --requests 0", "--requests: 0 is less than the least, 1"),
        ("bench --warmup 99999999999", "--warmup: 99999999999 is more than the most, 1,000,000"),
        ("bench --client-processes 0", "--client-processes: 0 is less than the least, 1"),
        ("bench --sweep 64,x", "--sweep: '64,x' is no list of whole numbers"),
        ("simulate --requests 0", "--requests: 0 is less than the least, 1"),
        ("simulate --min-user -1", "--min-user: -1 is less than the least, 0"),
        ("smoke --wait nan", "--wait: 'nan' is no number"),
        ("status --interval 0", "--interval: 0 is less than the least, 0.1"),
        ("status --interval -1", "--interval: -1 is less than the least, 0.1"),
        ("status --interval nan", "--interval: 'nan' is no number"),
    ],
)
def test_numbers_of_other_commands(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
