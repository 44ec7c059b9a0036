"""Orders to a running launcher: wrong ones, those that nobody waits for any more, and a launcher that stands still."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from launcher.cli import main as command
from launcher.control import client
from launcher.control.server import ControlServer, Note
from launcher.upkeep import Restart
from tests.supervise.conftest import plan_of, process, run
from tests.support.control import order


class Calls:
    """A supervisor that only notes that it was asked for a restart, and refuses to come back."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def rolling_restart(self, names: list[str]) -> bool:
        self.names += names
        return False


def restart(calls: Calls) -> Restart:
    plan = plan_of(process("frontend"), process("decode-0"), process("decode-1"))
    return Restart(calls, None, None, plan)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"names": 5}, "names is 5, not a list of names"),
        ({"names": "decode-0"}, 'names is "decode-0", not a list of names'),
        ({"names": {"decode-0": 1}}, 'names is {"decode-0": 1}, not a list of names'),
        ({"names": 0}, "names is 0, not a list of names"),
        ({"names": ["decode-0", 5]}, 'names is ["decode-0", 5], not a list of names'),
        ({"names": [["decode-0"]]}, 'names is [["decode-0"]], not a list of names'),
        ({"names": [None]}, "names is [null], not a list of names"),
        ({"force": "no"}, 'force is "no", not true or false'),
        ({"force": 1}, "force is 1, not true or false"),
        ({"force": []}, "force is [], not true or false"),
        ({"name": ["decode-0"]}, 'unknown: "name"; the order has: names, force'),
        ({"names": ["decode-9"]}, "there is no 'decode-9'; there are: frontend, decode-0, decode-1"),
        ({"names": [""]}, "there is no ''; there are: frontend, decode-0, decode-1"),
        (
            {"names": ["\ud800\x1b[2J"]},
            "there is no '\\ud800\\x1b[2J'; there are: frontend, decode-0, decode-1",
        ),
    ],
)
def test_a_wrong_order_gets_an_answer_and_a_line_of_the_log(
    tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    said: list[str] = []
    calls = Calls()

    async def main() -> None:
        server = ControlServer(tmp_path / "ctl", {"restart": restart(calls)}, said.append)
        await server.start()
        line = json.dumps({"do": "restart", **fields}).encode() + b"\n"
        assert await order(tmp_path / "ctl", line) == [{"ok": False, "error": why}]
        await server.close()

    run(main())
    assert calls.names == []
    assert len(said) == 2
    assert said[0].startswith("ordered over the control socket: ")
    assert said[1].startswith("order refused: ")
    assert not any("\x1b" in text for text in said)


def test_an_order_that_makes_sense_is_accepted_at_once(tmp_path: Path) -> None:
    calls = Calls()

    async def main() -> None:
        server = ControlServer(tmp_path / "ctl", {"restart": restart(calls)}, lambda text: None)
        await server.start()
        line = b'{"do": "restart", "names": ["decode-1", "decode-1"], "force": true}\n'
        first, *_, last = await order(tmp_path / "ctl", line)
        assert first == {"accepted": True}
        assert "decode-1 did not become ready again" in last["error"]
        await server.close()

    run(main())
    assert calls.names == ["decode-1"]


def test_a_fault_of_ours_is_answered_and_logged(tmp_path: Path) -> None:
    said: list[str] = []

    async def act(given: Mapping[str, Any], note: Note) -> None:
        raise IndexError("oh")

    async def main() -> None:
        server = ControlServer(tmp_path / "ctl", {"act": act}, said.append)
        await server.start()
        (answer,) = await order(tmp_path / "ctl", b'{"do": "act"}\n')
        assert answer == {"ok": False, "error": "the launcher failed at it: IndexError: oh"}
        await server.close()

    run(main())
    assert said[1] == "order refused: the launcher failed at it: IndexError: oh"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_order_whose_asker_has_hung_up_is_not_begun(tmp_path: Path, loop: Any) -> None:
    """As after SIGCONT: the order and the end of its asker lie in the socket together."""
    said: list[str] = []
    calls = Calls()

    async def main() -> None:
        server = ControlServer(tmp_path / "ctl", {"restart": restart(calls)}, said.append)
        await server.start()
        for ending in (socket.socket.close, lambda asker: asker.shutdown(socket.SHUT_WR)):
            asker = socket.socket(socket.AF_UNIX)
            asker.connect(str(tmp_path / "ctl"))
            asker.sendall(b'{"do": "restart", "names": ["decode-0"], "force": true}\n')
            ending(asker)
            await asyncio.sleep(0.1)
            if ending is socket.socket.close:
                assert calls.names == []
                assert said[-1].startswith("not begun, as the asker has hung up: ")
        # Who closed its own direction alone still listens.
        assert calls.names == ["decode-0"]
        await server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.fixture
def deaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state folder of a launcher that stands still: the kernel takes connections, nobody reads."""
    monkeypatch.setattr(client, "WAITING_S", 0.1)
    monkeypatch.setattr(client, "ACCEPT_S", 0.3)
    (tmp_path / "sim.run").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sim.run" / "ctl"))
        listener.listen()
        yield tmp_path


def test_the_command_gives_up_on_a_launcher_that_stands_still(
    deaf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert command(["restart", "--all", "--state-dir", str(deaf)]) == 2
    assert time.monotonic() - began < 5
    out, err = capsys.readouterr()
    assert out == "waiting: the launcher has not taken the order yet; giving up after 0.3 s\n"
    assert "will not begin it" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("answers", "code", "where"),
    [
        ([{"ok": False, "error": "there is no 'decode-9'"}], 2, "err"),
        ([{"accepted": True}, {"ok": False, "error": "no other decode worker is healthy"}], 3, "out"),
        ([{"accepted": True}, {"note": "decode-0: draining"}, {"ok": True}], 0, "out"),
    ],
)
def test_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answers: list[dict[str, Any]], code: int, where: str
) -> None:
    (tmp_path / "sim.run").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sim.run" / "ctl"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"".join(json.dumps(answer).encode() + b"\n" for answer in answers))

        thread = threading.Thread(target=serve)
        thread.start()
        assert command(["restart", "decode-9", "--state-dir", str(tmp_path), "--run", "sim.run"]) == code
        thread.join()
    said = getattr(capsys.readouterr(), where)
    assert (answers[-1].get("error") or answers[1]["note"]) in said
