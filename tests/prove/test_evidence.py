"""What workers say outside the API: cards in the discovery folder, lines in the log; and the page in the log."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.discovery.cards import Card, cards
from launcher.discovery.nodes import Remote
from launcher.prove.ears import Ears
from launcher.prove.evidence import Evidence
from launcher.supervise.logpump import LogPump
from launcher.supervise.logs import Format, JsonFormat, TextFormat
from launcher.supervise.logwriter import LogWriter


def register(root: Path, name: str, body: Any) -> None:
    folder = root / "v1" / "mdc"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(body if isinstance(body, str) else json.dumps(body))


def card(number: int, blocks: Any = 16384, size: Any = 64, **config: Any) -> dict[str, Any]:
    runtime = {"total_kv_blocks": blocks, **config}
    return {"instance_id": number, "card_json": {"kv_cache_block_size": size, "runtime_config": runtime}}


def test_cards(tmp_path: Path) -> None:
    register(tmp_path, "a", card(1, kv_event_publishing_enabled=False))
    register(tmp_path, "b", card(2, blocks=0))
    register(tmp_path, "c", {"instance_id": 3, "card_json": "odd"})
    register(tmp_path, "d", '{"half')
    register(tmp_path, "e", ["odd"])
    assert cards(tmp_path) == {1: Card(64, 16384, False), 2: Card(64, None, None), 3: Card(None, None, None)}
    assert cards(tmp_path / "nothing") == {}


class Registered:
    """Two workers of this node, and their cards in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def cards(self) -> dict[int, Card]:
        return cards(self._root)

    def owners(self) -> dict[int, str]:
        return {1: "prefill-0", 2: "decode-0"}

    def remote(self) -> dict[tuple[str, int], Remote]:
        return {}


def test_the_log_knows_better_than_the_card(tmp_path: Path) -> None:
    """With sliding windows vLLM's blocks times their size are not the tokens that fit."""
    ears = Ears()
    register(tmp_path, "a", card(1))
    register(tmp_path, "b", card(2))
    register(tmp_path, "c", card(3))
    evidence = Evidence(ears, Registered(tmp_path))
    assert evidence.kv_tokens() == {"prefill-0": 1048576, "decode-0": 1048576}
    ears.hear("decode-0", ["GPU KV cache size: 2,657,749 tokens"])
    assert evidence.kv_tokens() == {"prefill-0": 1048576, "decode-0": 2657749}


def written(form: Format, tmp_path: Path) -> str:
    path = tmp_path / "out"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        pump = LogPump(form, LogWriter(descriptor))
        pump.page("a page\n of two lines")
        pump.close()
    finally:
        os.close(descriptor)
    return path.read_text()


def test_a_page_stands_bare_in_a_text_log(tmp_path: Path) -> None:
    assert written(TextFormat(["frontend"]), tmp_path) == "a page\n of two lines\n"


def test_a_page_is_one_record_of_a_json_log(tmp_path: Path) -> None:
    [line] = written(JsonFormat(), tmp_path).splitlines()
    assert json.loads(line)["message"] == "a page\n of two lines"


@pytest.mark.parametrize(
    "lines", [["GPU KV cache size: 5 tokens"], ["x"] * 1000 + ["GPU KV cache size: 5 tokens"]]
)
def test_the_pump_lets_the_ears_hear(lines: list[str], tmp_path: Path) -> None:
    ears = Ears()
    reader, writer = os.pipe()
    sink = os.open(os.devnull, os.O_WRONLY)
    pump = LogPump(TextFormat(), LogWriter(sink), overhear=ears.hear)
    pump.add("decode-0", "decode", "stderr", reader)
    os.write(writer, "".join(f"{line}\n" for line in lines).encode())
    os.close(writer)
    deadline = time.monotonic() + 10
    while not ears.kv_tokens and time.monotonic() < deadline:
        time.sleep(0.01)
    pump.close()
    os.close(sink)
    assert ears.kv_tokens == {"decode-0": 5}
