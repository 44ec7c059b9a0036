"""What the workers say about themselves outside the API: in their logs, and to the router when they registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from launcher.discovery.cards import Card, cards
from launcher.prove.ears import Ears


class Evidence:
    """Of one deployment."""

    def __init__(
        self,
        ears: Ears | None = None,
        discovery: Path | None = None,
        owners: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        """`discovery`: the discovery folder. `owners`: the processes by the ids that they registered with."""
        self.ears = ears or Ears()
        self._discovery = discovery
        self._owners = owners

    def cards(self) -> dict[int, Card]:
        """What each registered worker told the router, by its id there."""
        return cards(self._discovery) if self._discovery is not None else {}

    def kv_tokens(self) -> dict[str, int]:
        """Tokens of KV that each worker has room for: as its log says, else as it told the router."""
        owners = self._owners()
        told = {owners[number]: card.kv_tokens for number, card in self.cards().items() if number in owners}
        return {name: tokens for name, tokens in told.items() if tokens is not None} | self.ears.kv_tokens
