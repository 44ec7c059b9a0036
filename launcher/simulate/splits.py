"""Every way to divide a target's GPUs between prefill and decode."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """Workers of each role; `aggregated` alone, or prefill and decode together."""

    aggregated: int = 0
    prefill: int = 0
    decode: int = 0

    @property
    def name(self) -> str:
        """`8 agg` or `4P4D`, as the field writes it."""
        return f"{self.aggregated} agg" if self.aggregated else f"{self.prefill}P{self.decode}D"


def every(gpus: int, *, aggregated: int | None, prefill: int | None, decode: int | None) -> list[Split]:
    """All splits that leave no GPU idle that a worker could use; aggregated first, then by rising prefill.

    The roles' arguments are the GPUs of one worker, None where there is no such role.
    """
    found = []
    if aggregated and gpus >= aggregated:
        found.append(Split(aggregated=gpus // aggregated))
    if prefill and decode:
        for count in range(1, (gpus - decode) // prefill + 1):
            rest = gpus - count * prefill
            decoders = rest // decode
            left = rest - decoders * decode
            if decoders >= 1 and left < prefill:
                found.append(Split(prefill=count, decode=decoders))
    return found
