"""Tool arguments: valid for the schema, whatever usual tools ask for."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.engines.echo_worker.arguments import example, tool_arguments

SCHEMAS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "minLength": 20},
    {"type": "string", "maxLength": 2},
    {"type": "string", "format": "date-time"},
    {"type": "string", "enum": ["C", "F"]},
    {"const": 7},
    {"type": "integer"},
    {"type": "integer", "minimum": 5, "maximum": 9},
    {"type": "integer", "exclusiveMinimum": 5},
    {"type": "integer", "minimum": 5, "exclusiveMinimum": True},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "multipleOf": 7, "minimum": 8},
    {"type": "integer", "multipleOf": 7, "maximum": 6},
    {"type": "number"},
    {"type": "number", "minimum": 2, "maximum": 3},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "multipleOf": 0.5, "minimum": 3},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["null", "integer"]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "uniqueItems": True},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2},
    {"type": "array", "maxItems": 0},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]},
    {"type": "object", "required": ["free"]},
    {"type": "object", "minProperties": 2, "properties": {"a": {"type": "integer"}}},
    {
        "anyOf": [
            {"type": "null"},
            {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        ]
    },
    {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "string"}]},
    {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"type": "integer"}}}]},
    {
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/place"}},
        "required": ["where"],
        "$defs": {
            "place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        },
    },
    {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}},
                "required": ["name"],
            }
        },
    },
    {"type": "string", "default": "x"},
    {"type": "integer", "examples": [42]},
    {},
    {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
]


@pytest.mark.parametrize("hint", ["", "What is the weather in Bern? 🦄"])
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_valid(schema: dict[str, Any], hint: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(_number_bounds(schema)).validate(example(schema, hint))


def _number_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Turn draft 4's boolean ``exclusiveMinimum`` into today's number."""
    if schema.get("exclusiveMinimum") is True:
        return {**schema, "exclusiveMinimum": schema["minimum"]}
    return schema


def test_endless_schema_ends() -> None:
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}},
    }
    assert isinstance(example(schema), dict)


def test_hint_fills_free_strings() -> None:
    tool = {"name": "f", "parameters": {"properties": {"q": {"type": "string"}}, "required": ["q"]}}
    assert tool_arguments(tool, "Bern") == {"q": "Bern"}


@pytest.mark.parametrize("parameters", [None, {"type": "object", "properties": {}}, {"type": "string"}, True])
def test_no_arguments(parameters: Any) -> None:
    assert tool_arguments({"name": "f", "parameters": parameters}, "Bern") == {}


def test_optional_property_is_shown() -> None:
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"limit": {"type": "integer"}}}}
    assert tool_arguments(tool) == {"limit": 1}
