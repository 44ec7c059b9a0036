"""Whatever Python has to say by itself becomes a line of the launcher's log, and nothing reaches stderr."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import warnings
from typing import Any, cast

import pytest
import uvloop

from launcher import serve
from launcher.findings import Exit
from launcher.supervise import strays
from launcher.supervise.custody import Custody
from launcher.supervise.logpump import LogPump
from tests.observe.support import plan


class Lines:
    """A pump that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def log(self, text: str, level: str = "info") -> None:
        self.said.append((level, text))


def pump(lines: Lines) -> LogPump:
    return cast(LogPump, lines)


class Unfinalized:
    def __del__(self) -> None:
        raise RuntimeError("in del")


def logged() -> None:
    logging.getLogger("library").warning("careful\n%d", 7)


def without_a_handler() -> None:
    logger = logging.Logger("alone")
    logger.warning("nobody listens")


def misformatted() -> None:
    logging.getLogger("library").error("%d", "seven")


def warned() -> None:
    warnings.simplefilter("always")
    warnings.warn("old ways", stacklevel=1)


def thread() -> None:
    def fail() -> None:
        raise RuntimeError("in a thread")

    worker = threading.Thread(target=fail, name="worker")
    worker.start()
    worker.join()


def finalizer() -> None:
    Unfinalized()


def of_a_loop() -> None:
    async def main() -> None:
        def fail() -> None:
            raise RuntimeError("in a callback")

        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(0.01)

    uvloop.run(main())


def connection() -> None:
    async def main() -> None:
        async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            raise TypeError("of an order")

        server = await asyncio.start_server(fail, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await reader.read()
        writer.close()
        server.close()
        await asyncio.sleep(0.05)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (logged, "library: careful 7"),
        (without_a_handler, "alone: nobody listens"),
        (misformatted, "library: %d"),
        (warned, "old ways"),
        (thread, "launcher: worker failed: RuntimeError: in a thread (at "),
        (finalizer, "RuntimeError: in del (at test_strays.py:"),
        (of_a_loop, "RuntimeError: in a callback (at "),
        (connection, "TypeError: of an order (at "),
    ],
)
def test_one_line_of_the_log_and_nothing_on_stderr(
    deed: Any, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = Lines()
    with warnings.catch_warnings(), strays.caught(pump(lines)):
        deed()
    ((level, text),) = lines.said
    assert said in text
    assert "\n" not in text
    assert level in ("warning", "error")
    assert capfd.readouterr().err == ""


def test_a_flood_of_one_kind_is_one_line_and_a_count() -> None:
    now, lines = [100.0], Lines()
    handler = strays.PumpHandler(pump(lines), clock=lambda: now[0])
    logger = logging.Logger("library")
    logger.addHandler(handler)
    for number in range(50):
        logger.error("fault %d", number)
    try:
        raise ValueError("of another kind")
    except ValueError:
        logger.exception("fault")
    now[0] += strays.EVERY_S
    logger.error("fault again")
    texts = [text for _, text in lines.said]
    assert texts[0] == "library: fault 0"
    assert texts[1].startswith("library: fault: ValueError: of another kind (at test_strays.py:")
    assert texts[2] == "library: fault again (49 more like it before)"
    assert len(texts) == 3


def test_everything_is_as_before_afterwards() -> None:
    import sys

    def hooks() -> list[Any]:
        return [
            logging.getLogger().handlers[:], logging.lastResort, threading.excepthook, sys.unraisablehook,
            warnings.showwarning,
        ]  # fmt: skip

    before = hooks()
    with strays.caught(pump(Lines())):
        assert hooks() != before
    assert hooks() == before


def test_a_fault_of_the_launcher_itself_is_a_line_of_its_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(serve, "prepare", lambda *args: None)
    monkeypatch.setattr(serve, "Deployment", broken)
    code = serve.serve(
        plan(), lambda process, incarnation: process, Custody(), json_logs=True, log_dir=None, findings=()
    )
    out, err = capfd.readouterr()
    assert code == Exit.PROCESS_FAILED
    assert err == ""
    last = [json.loads(line) for line in out.splitlines()][-1]
    assert last["level"] == "critical"
    assert "the launcher itself failed: RuntimeError: a fault (at " in last["message"]
