"""`launcher smoke` against a frontend that is not there: what passes, what fails, what the command prints."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from launcher.cli import main
from launcher.prove import smoke
from launcher.prove.proof import Outcome, Proof
from tests.prove.fake import Fake, Worker, serving

CALL = {"id": "1", "function": {"name": "get_weather", "arguments": '{"city":"Zurich","unit":"celsius"}'}}


def fake(**faults: Any) -> Fake:
    return Fake([Worker(11, "backend", 1), Worker(12, "backend", 2)], **faults)


def results(fake: Fake, *, speaks: bool = True) -> dict[str, Proof]:
    async def run() -> dict[str, Proof]:
        async with serving(fake) as frontend:
            what = smoke.Smoke(frontend, speaks=speaks)
            return {name: proof async for name, proof in _named(smoke.run(what))}

    return asyncio.run(run())


async def _named(proofs: Any) -> Any:
    names = iter(smoke.CHECKS)
    async for proof in proofs:
        yield next(names), proof


def test_what_a_good_frontend_gets() -> None:
    found = results(fake())
    good = {name for name, proof in found.items() if proof.outcome is Outcome.PASSED}
    # It calls no tool here, and has no /v1/responses.
    assert good == {
        "models", "chat", "streaming", "reasoning", "completions", "errors", "usage", "kv-routing",
    } - _bad_usage(found)  # fmt: skip
    assert found["responses"].outcome is Outcome.SKIPPED
    assert "no tool call" in found["tool-call"].text


def _bad_usage(found: dict[str, Proof]) -> set[str]:
    """The fake's usage of /v1/completions does not add up, and the check says so."""
    assert "usage does not add up" in found["completions"].text
    return {"completions"}


def test_a_tool_call_whole_and_streamed() -> None:
    found = results(fake(message={"content": None, "tool_calls": [CALL]}, finish_reason="tool_calls"))
    assert found["tool-call"].outcome is Outcome.PASSED
    assert found["tool-call-streamed"].outcome is Outcome.PASSED
    assert found["tool-call"].text == 'get_weather({"city":"Zurich","unit":"celsius"})'


def test_an_empty_message_is_the_vocabulary() -> None:
    found = results(fake(message={"content": None}))
    for name in ("chat", "streaming", "reasoning", "tool-call"):
        assert found[name].outcome is Outcome.FAILED
        assert "o200k_base.tiktoken" in found[name].fix


def test_random_text_is_not_asked_to_be_harmony() -> None:
    found = results(fake(message={"content": "xx"}), speaks=False)
    assert {name for name, proof in found.items() if "mocker" in proof.text} == {
        "reasoning",
        "tool-call",
        "tool-call-streamed",
    }


def test_once_nobody_answers_the_rest_is_skipped() -> None:
    async def run() -> list[Proof]:
        async with serving(fake()) as frontend:
            frontend.url = "http://127.0.0.1:9"
            return [proof async for proof in smoke.run(smoke.Smoke(frontend))]

    found = asyncio.run(run())
    assert [proof.outcome for proof in found] == [Outcome.FAILED] + [Outcome.SKIPPED] * (
        len(smoke.CHECKS) - 1
    )


# -- the command


@contextmanager
def background(fake: Fake) -> Iterator[str]:
    """The fake in a thread, as the command has a loop of its own."""
    started, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with serving(fake):
            loops.append(asyncio.get_running_loop())
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(20)
    try:
        yield fake.url
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(20)


def test_a_table_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with background(fake()) as url:
        assert main(["smoke", "--url", url, "--only", "models,errors"]) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[0] == f"openai/gpt-oss-120b at {url}"
        assert "  pass  models" in out
        assert "5 bad requests, each 4xx with a message (flat, openai)" in out
        assert out.splitlines()[-1] == "2 passed"
        assert main(["smoke", "--url", url, "--only", "tool-call"]) == 3
        out = capsys.readouterr().out
        assert "  FAIL  tool call" in out
        assert "-> the workers need parsers.reasoning" in out
        assert "or the engine is simulated and answers random text" in out
        assert "--admin URL" in out


@pytest.mark.parametrize("told", [True, False])
def test_a_simulated_engine_is_thought_of_only_where_nobody_said_which_it_is(told: bool) -> None:
    async def run() -> list[Proof]:
        async with serving(fake(message={"content": "xx"})) as frontend:
            what = smoke.Smoke(frontend, told=told)
            return [proof async for proof in smoke.run(what, ("reasoning", "tool-call"))]

    for proof in asyncio.run(run()):
        assert proof.outcome is Outcome.FAILED
        assert proof.fix.startswith("the workers need parsers.reasoning")
        assert ("simulated" in proof.fix) == (not told)


def test_503_is_not_ready_or_draining(capsys: pytest.CaptureFixture[str]) -> None:
    found = results(fake(draining=True))
    refused = [proof for proof in found.values() if proof.outcome is Outcome.FAILED]
    assert len(refused) >= 8
    assert {proof.fix for proof in refused} == {smoke.UNREADY}
    with background(fake(draining=True)) as url:
        assert main(["smoke", "--url", url]) == 3
    assert "draining" in capsys.readouterr().err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    with background(fake()) as url:
        assert (
            main(
                [
                    "smoke",
                    "--url",
                    f"{url}/v1/",
                    "--skip",
                    "tool-call,tool-call-streamed,completions",
                    "--json",
                ]
            )
            == 0
        )
    body = json.loads(capsys.readouterr().out)
    assert body["passed"] is True
    assert body["url"] == url
    assert {check["name"] for check in body["checks"]} >= {"models", "KV routing"}


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--url", "http://127.0.0.1:9"], 3, "lists no model"),
        (["--admin", "http://127.0.0.1:9"], 3, "no launcher answers at http://127.0.0.1:9"),
        (["--url", "http://127.0.0.1:9", "--only", "tool-cal"], 2, "did you mean 'tool-call'?"),
        (["--url", "ftp://host"], 2, "is no URL"),
        (["--url", "http://"], 2, "is no URL"),
        (["--target", "simm"], 2, "did you mean 'sim'?"),
    ],
)
def test_what_is_wrong_is_said(
    argv: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["smoke", *argv]) == code
    assert said in capsys.readouterr().err
