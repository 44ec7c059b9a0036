from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.supervise.logs import JsonFormat, TextFormat, has_clock, level_of, plain, stamp

WALL = 1764580800.123
NOW = "2025-12-01T09:20:00.123Z"
DYNAMO = "2025-12-01T09:19:59.500000Z  WARN dynamo_llm::http: slow"


def as_json(*lines: str, stream: str = "stderr") -> list[dict[str, Any]]:
    text = JsonFormat().lines("decode-0", "decode", stream, lines, WALL)
    return [json.loads(line) for line in text.splitlines()]


def test_stamp() -> None:
    assert stamp(WALL) == NOW


def test_text_has_aligned_names_and_a_time_where_the_line_has_none() -> None:
    form = TextFormat(["frontend", "decode-12"])
    assert form.lines("frontend", "frontend", "stderr", [DYNAMO, "bare"], WALL) == (
        f"frontend  | {DYNAMO}\nfrontend  | {NOW} bare\n"
    )


def test_text_drops_escape_sequences_where_there_is_no_terminal() -> None:
    form = TextFormat(["a"])
    line = form.lines("a", "", "stdout", ["\x1b[31m12:00:00 red\x1b[0m\x1b[2K\x1b]0;title\x07"], WALL)
    assert line == "a        | 12:00:00 red\n"


def test_text_keeps_colours_on_a_terminal_but_nothing_that_moves_the_cursor() -> None:
    form = TextFormat(["a"], colour=True)
    line = form.lines("a", "", "stdout", ["\x1b[31m12:00:00 red\x1b[2K\x1b[3A", "12:00:00 plain"], WALL)
    red, bare = line.splitlines()
    assert red.endswith("\x1b[31m12:00:00 red\x1b[0m")
    assert bare.endswith("12:00:00 plain")


def test_own_lines_look_like_the_children_s() -> None:
    text = TextFormat().own("warning", "one\ntwo", WALL)
    assert text == f"launcher | {NOW} WARNING one\nlauncher | {NOW} WARNING two\n"
    record = json.loads(JsonFormat().own("info", "one\ntwo", WALL))
    assert record["process"] == "launcher"
    assert record["message"] == "one\ntwo"


def test_json_of_a_plain_line() -> None:
    assert as_json("Traceback: \x1b[1mboom\x1b[0m") == [
        {
            "time": NOW,
            "process": "decode-0",
            "role": "decode",
            "stream": "stderr",
            "level": "info",
            "message": "Traceback: boom",
        }
    ]


def test_json_takes_dynamo_s_text_apart() -> None:
    (record,) = as_json(DYNAMO)
    assert record["time"] == "2025-12-01T09:19:59.500000Z"
    assert record["level"] == "warning"
    assert record["target"] == "dynamo_llm::http"
    assert record["message"] == "slow"


def test_json_of_a_child_is_merged() -> None:
    line = json.dumps(
        {
            "time": "T",
            "level": "ERROR",
            "target": "x::y",
            "message": "no",
            "line": 7,
            "role": "its own",
            "process": 1,
        }
    )
    (record,) = as_json(line)
    assert record == {
        "time": "T",
        "process": "decode-0",
        "role": "decode",
        "stream": "stderr",
        "level": "error",
        "message": "no",
        "target": "x::y",
        "line": 7,
        "child.role": "its own",
        "child.process": 1,
    }


@pytest.mark.parametrize(
    "line", ['{"a": 1}', "{not json}", "[1, 2]", '{"message": "cut', "{" * 100_000 + "}"]
)
def test_other_json_stays_a_message(line: str) -> None:
    (record,) = as_json(line)
    assert record["message"] == line


@pytest.mark.parametrize("message", [{"nested": True}, None, 5])
def test_a_message_that_is_no_text_is_kept(message: object) -> None:
    (record,) = as_json(json.dumps({"message": message}))
    assert record["message"] == message


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("INFO 12-01 09:00:00 [core.py:58] ready", "info"),
        ("(EngineCore pid=7) ERROR 12-01 09:00:00 [core.py:58] no", "error"),
        ("[12/01/2025-09:00:00] [TRT-LLM] [W] careful", "warning"),
        ("CRITICAL: out", "critical"),
        ("information about errors", "info"),
        ("x" * 100 + " ERROR", "info"),
    ],
)
def test_levels(line: str, level: str) -> None:
    assert level_of(line) == level


def test_clock() -> None:
    assert has_clock("INFO 12-01 09:00:00 x")
    assert not has_clock("x" * 70 + " 09:00:00")


def test_plain() -> None:
    assert plain("\x1b[38;5;1ma\x1b[0m\x1b(B\x1b[?25l\x1bM") == "a"
