"""What a proof found: one claim about the deployment, whether it holds, and what to do where it does not."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Outcome(enum.StrEnum):
    """How a proof went."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not tried, or not provable here; the text says why."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One result. Figures carry their unit in the name (`_s`, `_bytes`, `_gb_s`)."""

    name: str
    outcome: Outcome
    text: str
    """What was seen, in one line."""
    fix: str = ""
    """What to do about a failure."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    """How long it took."""
    final: bool = False
    """A failure that trying again cannot change."""

    @property
    def ok(self) -> bool:
        return self.outcome is not Outcome.FAILED

    def reason(self) -> str:
        """A failure as one line for `/readyz` and the log: the proof's name, what is wrong, what to do."""
        return f"{self.name} not proven: {self.text}" + (f"; {self.fix}" if self.fix else "")

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "name": self.name,
            "outcome": self.outcome.value,
            "text": self.text,
            "fix": self.fix,
            "figures": dict(self.figures),
            "seconds": round(self.seconds, 3),
        }
        return {key: value for key, value in fields.items() if value not in ("", {})}


def passed(name: str, text: str, **figures: Any) -> Proof:
    """A claim that holds."""
    return Proof(name, Outcome.PASSED, text, figures=figures)


def failed(name: str, text: str, fix: str = "", *, final: bool = False, **figures: Any) -> Proof:
    """A claim that does not hold."""
    return Proof(name, Outcome.FAILED, text, fix, figures=figures, final=final)


def skipped(name: str, text: str) -> Proof:
    """A claim that was not tried, and why."""
    return Proof(name, Outcome.SKIPPED, text)
