"""Plausible tool arguments: a small, deterministic value that is valid for a JSON schema.

Covers what tool schemas use: ``type`` (or several), ``enum``, ``const``, ``default``, ``examples``,
``properties``, ``required``, ``items``, ``prefixItems``, ``anyOf``/``oneOf``/``allOf``, ``$ref`` inside the
document, the bounds of numbers, strings and arrays, and the common ``format``s. Not covered: ``pattern``,
``not``, ``if``, ``dependent…``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["example", "tool_arguments"]

# Deep enough for real tools; a schema that refers to itself ends here.
_DEEPEST = 8

_FORMATS = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "duration": "PT1H",
    "email": "user@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def tool_arguments(tool: Mapping[str, Any], hint: str = "") -> dict[str, Any]:
    """Return arguments for a function; ``hint`` (the user's words) fills free strings.

    A value that is not an object, or no schema at all, gives no arguments.
    """
    schema = tool.get("parameters")
    value = example(schema, hint) if isinstance(schema, Mapping) else {}
    return value if isinstance(value, dict) else {}


def example(schema: Any, hint: str = "") -> Any:
    """Return one value that is valid for ``schema``."""
    return _value(schema, schema if isinstance(schema, Mapping) else {}, hint, 0)


def _value(schema: Any, root: Mapping[str, Any], hint: str, depth: int) -> Any:
    if not isinstance(schema, Mapping):
        return hint or "example"
    schema = _resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "default" in schema:
        return schema["default"]
    if isinstance(schema.get("examples"), list) and schema["examples"]:
        return schema["examples"][0]
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, list) and choices:
            # `null` is valid for an optional value but says nothing: take the first that is something.
            chosen = next(
                (c for c in choices if isinstance(c, Mapping) and c.get("type") != "null"), choices[0]
            )
            rest = {name: value for name, value in schema.items() if name != key}
            return _value(_merged([rest, chosen]), root, hint, depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
    match kind:
        case "object":
            return _object(schema, root, hint, depth)
        case "array":
            return _array(schema, root, hint, depth)
        case "integer":
            return _integer(schema)
        case "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
    return _string(schema, hint)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow ``$ref`` and fold ``allOf`` in."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        target: Any = root
        for part in filter(None, reference[1:].split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            target = target.get(name, {}) if isinstance(target, Mapping) else {}
        rest = {name: value for name, value in schema.items() if name != "$ref"}
        schema = _merged([target if isinstance(target, Mapping) else {}, rest])
    parts = schema.get("allOf")
    if isinstance(parts, list):
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        schema = _merged([rest, *(_resolved(part, root) for part in parts if isinstance(part, Mapping))])
    return schema


def _merged(schemas: list[Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for schema in schemas:
        for name, value in schema.items() if isinstance(schema, Mapping) else ():
            if name == "properties" and isinstance(result.get(name), Mapping):
                result[name] = {**result[name], **value}
            elif name == "required" and isinstance(result.get(name), list):
                result[name] = [*result[name], *value]
            else:
                result[name] = value
    return result


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], hint: str, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = [name for name in schema.get("required") or [] if isinstance(name, str)]
    # Where nothing is required the first property still makes a call worth looking at.
    names = list(dict.fromkeys(required or list(properties)[:1])) if depth < _DEEPEST else required
    if depth > 2 * _DEEPEST:
        names = []
    result = {name: _value(properties.get(name, {"type": "string"}), root, hint, depth + 1) for name in names}
    for index in range(len(result), int(schema.get("minProperties", 0))):
        extra = next((name for name in properties if name not in result), f"key{index}")
        result[extra] = _value(properties.get(extra, {"type": "string"}), root, hint, depth + 1)
    return result


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], hint: str, depth: int) -> list[Any]:
    prefix = schema.get("prefixItems")
    prefix = prefix if isinstance(prefix, list) else []
    least = int(schema.get("minItems", 0))
    most = int(schema.get("maxItems", max(1, least, len(prefix))))
    count = min(most, max(least, len(prefix), 1 if depth < _DEEPEST else 0))
    item = schema.get("items", {"type": "string"})
    values = [_value(prefix[i] if i < len(prefix) else item, root, hint, depth + 1) for i in range(count)]
    if schema.get("uniqueItems") and count > 1:
        values = _distinct(values, _resolved(item, root) if isinstance(item, Mapping) else {})
    return values


def _distinct(values: list[Any], item: Mapping[str, Any]) -> list[Any]:
    choices = item.get("enum")
    if isinstance(choices, list):
        return choices[: len(values)]
    return [
        value
        if i == 0 or isinstance(value, bool)
        else value + i
        if isinstance(value, int | float)
        else f"{value}{i}"
        for i, value in enumerate(values)
    ]


def _bounds(schema: Mapping[str, Any]) -> tuple[float, float, bool, bool]:
    """Return lowest, highest, and whether each is excluded (both the boolean and the number style)."""
    low, high = float(schema.get("minimum", -math.inf)), float(schema.get("maximum", math.inf))
    open_low, open_high = schema.get("exclusiveMinimum", False), schema.get("exclusiveMaximum", False)
    if not isinstance(open_low, bool):
        low, open_low = max(low, float(open_low)), float(open_low) >= low
    if not isinstance(open_high, bool):
        high, open_high = min(high, float(open_high)), float(open_high) <= high
    return low, high, open_low, open_high


def _integer(schema: Mapping[str, Any]) -> int:
    low, high, open_low, open_high = _bounds(schema)
    step = int(schema.get("multipleOf", 1)) or 1
    least = -math.inf if low == -math.inf else math.floor(low) + 1 if open_low else math.ceil(low)
    most = math.inf if high == math.inf else math.ceil(high) - 1 if open_high else math.floor(high)
    value = min(max(1, least), most)
    up = math.ceil(value / step) * step
    return int(up if up <= most else math.floor(value / step) * step)


def _number(schema: Mapping[str, Any]) -> float:
    low, high, open_low, open_high = _bounds(schema)
    step = schema.get("multipleOf")
    if step:
        base = 1.0 if low <= 1.0 <= high else low if low > 1.0 else high
        return float(
            math.floor(base / step) * step
            if base > 1.0 and low == -math.inf
            else math.ceil(base / step) * step
        )
    if (low < 1.5 < high) or (low == 1.5 and not open_low) or (high == 1.5 and not open_high):
        return 1.5
    if low > -math.inf and high < math.inf:
        return (low + high) / 2
    return low + 1 if low > -math.inf else high - 1


def _string(schema: Mapping[str, Any], hint: str) -> str:
    text = _FORMATS.get(str(schema.get("format", "")), hint or "example")
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    if len(text) < least:
        text = text.ljust(least, "x")
    return text if most is None else text[: int(most)]
