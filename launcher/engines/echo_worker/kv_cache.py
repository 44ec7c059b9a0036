"""A simulated prefix cache: which blocks of prompts a worker holds, and the events that say so.

No KV is stored; only the hashes by which a KV-aware router learns where a prefix is.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

__all__ = ["Change", "PrefixCache", "block_hashes"]


@dataclass(frozen=True, slots=True)
class Change:
    """What storing a prompt changed."""

    cached_tokens: int
    """Leading tokens of the prompt that were held already; a multiple of the block size."""
    parent: int | None
    """Hash of the block before the first stored one."""
    stored: tuple[int, ...]
    """Hashes of the newly stored blocks, in prompt order."""
    stored_tokens: tuple[int, ...]
    """Token ids of those blocks."""
    removed: tuple[int, ...]
    """Hashes of the evicted blocks."""


def block_hashes(tokens: Sequence[int], block_size: int) -> list[int]:
    """Return a hash per full block that depends on the block and everything before it (signed 64 bits)."""
    hashes: list[int] = []
    previous = 0
    for start in range(0, len(tokens) - block_size + 1, block_size):
        packed = struct.pack(f"<q{block_size}I", previous, *tokens[start : start + block_size])
        previous = int.from_bytes(blake2b(packed, digest_size=8).digest(), "little", signed=True)
        hashes.append(previous)
    return hashes


class PrefixCache:
    """The blocks held by one worker, least recently used evicted first."""

    def __init__(self, block_size: int, capacity: int) -> None:
        """Hold up to ``capacity`` blocks of ``block_size`` tokens."""
        self.block_size = block_size
        self.capacity = capacity
        self._held: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of blocks held."""
        return len(self._held)

    def store(self, tokens: Sequence[int]) -> Change:
        """Hold the full blocks of a prompt and return what changed.

        Blocks beyond the capacity are not held: a prefix is useful, its far end alone is not.
        """
        size = self.block_size
        hashes = block_hashes(tokens, size)[: self.capacity]
        known = 0
        while known < len(hashes) and hashes[known] in self._held:
            known += 1
        new = hashes[known:]
        # From the end: a prefix must outlive what follows it, and eviction takes the oldest first.
        for block in reversed(hashes):
            self._held[block] = None
            self._held.move_to_end(block)
        removed = [self._held.popitem(last=False)[0] for _ in range(len(self._held) - self.capacity)]
        return Change(
            cached_tokens=known * size,
            parent=hashes[known - 1] if known else None,
            stored=tuple(new),
            stored_tokens=tuple(tokens[known * size : len(hashes) * size]),
            removed=tuple(removed),
        )
