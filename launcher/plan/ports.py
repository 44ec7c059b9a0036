"""One table of all ports: disjoint blocks, below the ephemeral range, tried before anything starts.

A launcher holds a block of numbers for as long as it lives by binding an abstract unix socket named after it: the
name is free again the moment the process is gone, and is as wide as the port space (the network namespace).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from launcher.machine.sockets import can_bind

BLOCK = 500
"""Ports of one launcher: a restart takes fresh ones, and 64 workers with four each leave room."""
CEILING = 32767
"""Dynamo reads its system port as a signed 16-bit number and exits above this (1.3.1 to 1.6.1)."""


def free_everywhere(port: int) -> bool:
    """Free on loopback and on all addresses: Dynamo binds some of its sockets to one, some to the other."""
    return can_bind("127.0.0.1", port) is None and can_bind("0.0.0.0", port) is None


class NoPorts(Exception):
    """The range between the base port and the ceiling has no free block, or the block is used up."""


@dataclass
class PortTable:
    """Hands out port numbers of one block. Not thread-safe."""

    base: int
    ceiling: int = CEILING
    is_free: Callable[[int], bool] = free_everywhere
    _next: int = field(init=False)
    _end: int = field(init=False)
    _taken: dict[int, str] = field(init=False, default_factory=dict)
    _claim: socket.socket | None = field(init=False, default=None)
    start: int = field(init=False)

    def __post_init__(self) -> None:
        start = self.base
        while start + BLOCK - 1 <= self.ceiling:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0gpt-oss-launcher/ports/{start}")
            except OSError:
                claim.close()
                start += BLOCK
                continue
            self._claim = claim
            break
        else:
            raise NoPorts(f"no free block of {BLOCK} ports between {self.base} and {self.ceiling}")
        self.start = self._next = start
        self._end = start + BLOCK

    def take(self, owner: str, purpose: str, span: int = 1) -> int:
        """The first of `span` free numbers in a row, kept for `owner`; raises NoPorts where none are left.

        Numbers rise from call to call and wrap at the end of the block, so that a restarted process gets others than
        it had: a peer that still remembers the old identity cannot reach the new one by accident.
        """
        size = self._end - self.start
        for _ in range(size):
            first = self._next
            numbers = range(first, first + span)
            if numbers.stop > self._end:
                self._next = self.start
                continue
            if all(number not in self._taken and self.is_free(number) for number in numbers):
                for number in numbers:
                    self._taken[number] = f"{owner}/{purpose}"
                self._next = numbers.stop if numbers.stop < self._end else self.start
                return first
            self._next += 1
        raise NoPorts(f"all {size} ports of the block at {self.start} are in use")

    def release(self, ports: Iterable[int]) -> None:
        """Give numbers back, with the span they were taken with."""
        for port in ports:
            owner = self._taken.pop(port, None)
            while owner is not None and self._taken.get(port + 1) == owner:
                port += 1
                del self._taken[port]

    def close(self) -> None:
        """Give the block back."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None
