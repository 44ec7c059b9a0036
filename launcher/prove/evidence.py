"""What the workers say about themselves outside the API: in their logs, and to the router when they registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from launcher.discovery.cards import Card
from launcher.discovery.nodes import Remote
from launcher.prove.ears import Ears


class Registered(Protocol):
    """What discovery knows of the workers."""

    def cards(self) -> Mapping[int, Card]: ...

    def owners(self) -> Mapping[int, str]: ...

    def remote(self) -> Mapping[tuple[str, int], Remote]: ...


class Evidence:
    """Of one deployment."""

    def __init__(self, ears: Ears | None = None, registered: Registered | None = None) -> None:
        self.ears = ears or Ears()
        self._registered = registered

    def cards(self) -> dict[int, Card]:
        """What each registered worker told the router, by its id there."""
        return dict(self._registered.cards()) if self._registered is not None else {}

    def remote(self) -> dict[tuple[str, int], Remote]:
        """The workers of other nodes, by the address and port where they take requests."""
        return dict(self._registered.remote()) if self._registered is not None else {}

    def kv_tokens(self) -> dict[str, int]:
        """Tokens of KV that each worker of this node has room for: as its log says, else as it told the router."""
        owners = self._registered.owners() if self._registered is not None else {}
        told = {owners[number]: card.kv_tokens for number, card in self.cards().items() if number in owners}
        return {name: tokens for name, tokens in told.items() if tokens is not None} | self.ears.kv_tokens
