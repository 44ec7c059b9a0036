"""Options that take numbers: what is out of range is refused by the command line, not taken for the default."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any


def number(
    parser: argparse._ActionsContainer,
    flag: str,
    *,
    least: int = 0,
    most: int | None = None,
    why: str = "",
    **options: Any,
) -> None:
    """An option that takes a whole number from `least` on; `why` says what sets the `most`."""

    def whole(text: str) -> int:
        return int(_within(text, _whole(text), least, most, why))

    parser.add_argument(flag, type=whole, metavar="N", **options)


def numbers(text: str) -> list[int]:
    """An option's list of whole numbers from 1 on, in rising order."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found = [int(part) for part in parts if part.isdecimal() and len(part) < 10]
    if len(found) < len(parts) or not found or min(found) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of whole numbers from 1 on, such as 64,128,256"
        )
    return sorted(set(found))


def real(least: float) -> Callable[[str], float]:
    """The type of an option that takes a finite number from `least` on, such as seconds."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"{text!r} is no number")
        return _within(text, value, least)

    return read


def _whole(text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def _within(text: str, value: float, least: float, most: float | None = None, why: str = "") -> float:
    if value < least:
        raise argparse.ArgumentTypeError(f"{text} is less than the least, {least:g}")
    if most is not None and value > most:
        raise argparse.ArgumentTypeError(
            f"{text} is more than the most, {most:,}" + (f": {why}" if why else "")
        )
    return value
