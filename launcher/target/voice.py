"""What is wrong with a value, in the words of a person who reads an error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

WORDS: dict[str, str] = {
    "int_parsing": "not a whole number",
    "int_parsing_size": "too large a number",
    "int_type": "not a whole number",
    "int_from_float": "not a whole number",
    "float_parsing": "not a number",
    "float_type": "not a number",
    "finite_number": "not a finite number",
    "bool_parsing": "neither true nor false",
    "bool_type": "neither true nor false",
    "string_type": "not text",
    "list_type": "not a list",
    "tuple_type": "not a list",
    "dict_type": "not a group of keys",
    "model_type": "not a group of keys",
    "model_attributes_type": "not a group of keys",
    "greater_than_equal": "less than the least, {ge}",
    "less_than_equal": "more than the most, {le}",
    "greater_than": "not more than {gt}",
    "less_than": "not less than {lt}",
    "literal_error": "not {expected}",
    "string_pattern_mismatch": "not of the form {pattern}",
    "string_too_long": "longer than {max_length} characters",
    "path_type": "not a path",
}
"""Pydantic's kind of a fault to what the value is instead; the names in braces are the fault's context."""

NAME = "not lower-case letters, digits and dashes"
BASE_PORT = "each launcher takes 500 ports from there, and Dynamo takes no system port above 32767"
"""Why a base port has limits."""


def predicate(fault: Any) -> str:
    """The rest of "the value is ...", or pydantic's own sentence where we have none."""
    context: Mapping[str, Any] = fault.get("ctx") or {}
    if fault["type"] == "string_too_short" and context.get("min_length") == 1:
        return "empty"
    if fault["type"] == "string_pattern_mismatch" and context.get("pattern") == r"^[^\x00]*$":
        return "not free of NUL"
    if fault["type"] in WORDS:
        return WORDS[fault["type"]].format_map(context)
    return str(fault["msg"][:1].lower() + fault["msg"][1:])


_READ: dict[str, Callable[[str], Any]] = {
    "int_type": int,
    "float_type": float,
    "bool_type": {"true": True, "false": False}.__getitem__,
}
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+")
_YAML_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*\.[0-9_]*[eE][-+][0-9]+")
"""YAML 1.1 reads a number with an exponent only where it has a point and the exponent a sign; 1e-9 is text there."""
LONGEST_NUMBER = 24
"""Characters of a number that a message shows written out."""


def meant(fault: Any) -> str:
    """What to write where the value is text, and would be right as the number or truth value that it looks like.

    Empty where it is no text, or would not be right.
    """
    read, value = _READ.get(fault["type"]), fault.get("input")
    if read is None or not isinstance(value, str):
        return ""
    if _EXPONENT.fullmatch(value) and not _YAML_EXPONENT.fullmatch(value):
        return _written_out(value, whole=read is int)
    try:
        number = read(value)
    except (ValueError, KeyError):
        return ""
    return "write it without quotes" if math.isfinite(number) else ""


def _written_out(value: str, *, whole: bool) -> str:
    text = value.lower().replace("_", "")
    mantissa, _, exponent = text.partition("e")
    if not -400 < int(exponent[:6]) < 400:
        return ""
    number = Decimal(text)
    plain = f"{number:f}"
    if whole:
        return f"write it as {number:.0f}" if number == int(number) and len(plain) <= LONGEST_NUMBER else ""
    point = mantissa if "." in mantissa else f"{mantissa}.0"
    sign = "" if exponent[0] in "+-" else "+"
    other = f"{point}e{sign}{exponent}"
    return f"write it as {plain} or {other}" if len(plain) <= LONGEST_NUMBER else f"write it as {other}"


def shown(value: Any) -> str:
    """The value as it could stand in the file, on one line and short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
