"""What each worker told the router about itself when it registered: its model card in the discovery folder.

Dynamo 1.3.1 to 1.6.1: `v1/mdc/KEY`, `{"instance_id", "card_json": {"kv_cache_block_size", "runtime_config": {...}}}`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Card:
    """One worker's card, as far as it is read."""

    block_size: int | None
    """Tokens of one KV block."""
    kv_blocks: int | None
    """KV blocks that it has room for."""
    publishes: bool | None
    """Whether it says that it publishes KV events; from Dynamo 1.4 on."""

    @property
    def kv_tokens(self) -> int | None:
        if self.block_size is None or self.kv_blocks is None:
            return None
        return self.block_size * self.kv_blocks


def cards(root: Path) -> dict[int, Card]:
    """The cards in a discovery folder, by the worker's id; what cannot be read is left out."""
    found: dict[int, Card] = {}
    try:
        entries = [
            Path(entry.path) for entry in os.scandir(root / "v1" / "mdc") if not entry.name.startswith(".")
        ]
    except OSError:
        return found
    for path in entries:
        try:
            body = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        number = body.get("instance_id") if isinstance(body, dict) else None
        if isinstance(number, int):
            found[number] = card(body.get("card_json"))
    return found


def card(body: Any) -> Card:
    """A card from its JSON (`card_json`)."""
    if not isinstance(body, dict):
        return Card(None, None, None)
    config = body.get("runtime_config")
    config = config if isinstance(config, dict) else {}
    blocks, publishes = config.get("total_kv_blocks"), config.get("kv_event_publishing_enabled")
    size = body.get("kv_cache_block_size")
    return Card(
        size if isinstance(size, int) and size > 0 else None,
        blocks if isinstance(blocks, int) and blocks > 0 else None,
        publishes if isinstance(publishes, bool) else None,
    )
