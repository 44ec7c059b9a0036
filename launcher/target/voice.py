"""What is wrong with a value, in the words of a person who reads an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


def quoted(fault: Any) -> bool:
    """Whether the value would be right without the quotes around it."""
    read, value = _READ.get(fault["type"]), fault.get("input")
    if read is None or not isinstance(value, str):
        return False
    try:
        read(value)
    except (ValueError, KeyError):
        return False
    return True


def shown(value: Any) -> str:
    """The value as it could stand in the file, on one line and short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
