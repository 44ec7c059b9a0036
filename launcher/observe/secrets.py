"""Keeps secrets out of what is shown or written: values of known secret variables, and what looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.plan.model import MASK, is_secret

SHORTEST = 6
"""Characters; a shorter value is found in too many innocent words to be masked in free text."""
_TOKENS = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|nvapi-[\w-]{16,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,})")
# What follows a word that says so: `Authorization: Bearer x`, `api_key=x`, `--api-key x`, `"password": "x"`.
_BEARER = re.compile(r"(?i)\b(bearer\s+)([\w.~+/=-]{6,})")
_NAMED = re.compile(
    r"(?i)\b((?:[a-z0-9]+[_-])*(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|password|passwd|token)"
    r"""["']?(?:\s*[=:]\s*|\s+)["']?)([^\s"',;}\])]{6,})"""
)
# `they ask for no password: whoever reaches it may`: words before it on the line, and words that go on after.
_SAID_BEFORE = re.compile(r"[A-Za-z]{2,} $")
_WORD = re.compile(r"[A-Za-z][a-z]{0,15}(?:['-][a-z]+)?")
_GOES_ON = re.compile(r"(?:'[a-z]+)?[,.;]? [A-Za-z][a-z]*(?:['-][a-z]+)?(?:[,.;]? |[,.;)]?$)", re.MULTILINE)
_IN_URL = re.compile(r"(\w+://[^\s/:@]+:)([^\s/@]+)(@)")


class Masker:
    """Masks text and JSON-like values."""

    def __init__(self, environments: Iterable[Mapping[str, str]] = ()) -> None:
        """`environments`: the launcher's and its children's; the values of their secrets are masked anywhere."""
        values = {
            value
            for environment in environments
            for name, value in environment.items()
            if is_secret(name) and len(value) >= SHORTEST
        }
        # The longest first: one secret may begin with another.
        ordered = sorted(values, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """The text with secrets replaced."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _TOKENS.sub(MASK, text)
        text = _BEARER.sub(rf"\1{MASK}", text)
        text = _NAMED.sub(_named, text)
        return _IN_URL.sub(rf"\1{MASK}\3", text)

    def value(self, value: Any) -> Any:
        """A copy of a JSON-like value with every string masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self._field(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._after(value, index) for index in range(len(value))]
        return value

    def _field(self, name: str, item: Any) -> Any:
        return MASK if isinstance(item, str) and item and is_secret(name) else self.value(item)

    def _after(self, items: list[Any] | tuple[Any, ...], index: int) -> Any:
        """An element; of a command line, the value after a flag that names a secret."""
        item, before = items[index], items[index - 1] if index else ""
        flag = isinstance(before, str) and before.startswith("--") and "=" not in before
        if flag and isinstance(item, str) and is_secret(before.replace("-", "_")):
            return MASK
        return self.value(item)


def _named(found: re.Match[str]) -> str:
    if _is_prose(found):
        return found[0]
    # `token: 12` counts something and `unexpected token: comma` is prose; a token has both letters and digits.
    lead, value = found[1], found[2]
    prose = not ("=" in lead or (":" in lead and "token" not in lead.lower()))
    mixed = any(char.isdigit() for char in value) and any(char.isalpha() for char in value)
    return f"{lead}{MASK}" if mixed or not (prose or value.isdecimal()) else found[0]


def _is_prose(found: re.Match[str]) -> bool:
    """Whether the colon is one of a sentence; what stands alone, in quotes or after `=` never is."""
    text = found.string
    return (
        found[1].endswith(": ")
        and _SAID_BEFORE.search(text, 0, found.start()) is not None
        and _WORD.fullmatch(found[2].rstrip(".")) is not None
        and _GOES_ON.match(text, found.start(2) + len(found[2].rstrip("."))) is not None
    )
