"""Subschemas with the same meaning are built once; others are built separately."""

from __future__ import annotations

from typing import Any

import pytest

from app.constraint.program import build
from app.constraint.schema.keywords import SubschemaCache
from app.core.errors import UnsupportedSchema
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker

SAME: list[tuple[Any, Any]] = [
    ({"type": "string"}, {"type": "string", "title": "name", "description": "of a person"}),
    ({"items": {"enum": [1, "a"]}}, {"items": {"enum": [1, "a"], "default": 1}}),
    ({"properties": {"title": {}}}, {"properties": {"title": {"examples": [2]}}}),
]
DIFFERENT: list[tuple[Any, Any]] = [
    ({"const": 1}, {"const": True}),
    ({"const": 1}, {"const": 1.0}),
    ({"properties": {"a": {}}}, {"properties": {"b": {}}}),
    ({"properties": {"title": {}}}, {"properties": {}}),
    ({"contains": {}}, {"contains": {}, "minContains": 2}),
    ({"items": {}}, {"items": True}),
    ({"items": 1}, {"items": True}),
    ({"if": {}, "then": {}}, {"if": {}, "else": {}}),
    ({"anyOf": [{}, {"type": "null"}]}, {"anyOf": [{"type": "null"}, {}]}),
    ({"type": "string"}, {"type": "string", "x-choice": "exact"}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_schemas_with_the_same_meaning_have_one_number(one: Any, other: Any) -> None:
    subschema_cache = SubschemaCache()
    assert subschema_cache.of(one) == subschema_cache.of(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_schemas_with_different_meanings_have_different_numbers(one: Any, other: Any) -> None:
    subschema_cache = SubschemaCache()
    assert subschema_cache.of(one) != subschema_cache.of(other)


def test_recursive_subschemas_that_say_the_same_are_one_rule() -> None:
    def tree(title: str) -> Any:
        return {"title": title, "type": "array", "items": {"$ref": "#/properties/a"}}

    one, _ = build(JsonSchema({"type": "object", "properties": {"a": tree("a")}}))
    two, _ = build(JsonSchema({"type": "object", "properties": {"a": tree("a"), "b": tree("b")}}))
    assert len(one.bodies) == len(two.bodies)


def test_equal_references_below_different_addresses_are_told_apart() -> None:
    def part(name: str, kind: str) -> Any:
        value = {"properties": {"v": {"$ref": "#/$defs/v"}}, "type": "object"}
        return {"$id": f"http://x/{name}/", "$defs": {"v": {"type": kind}}, **value}

    schema = {"properties": {"a": part("a", "null"), "b": part("b", "boolean")}}
    walker = Walker.of(JsonSchema({"type": "object", **schema}))
    assert walker.accepts('{"a": {"v": null}, "b": {"v": true}}')
    assert not walker.accepts('{"a": {"v": null}, "b": {"v": null}}')
    assert not walker.accepts('{"a": {"v": true}}')


def test_an_error_names_the_place_that_cannot_be_enforced() -> None:
    """Unique items are built separately from equal items elsewhere."""
    items = {"type": "object", "minProperties": 3}
    build(JsonSchema({"properties": {"a": items, "b": items}}))
    schema = {"properties": {"a": items, "b": {"uniqueItems": True, "items": items}}}
    with pytest.raises(UnsupportedSchema) as refused:
        build(JsonSchema(schema))
    assert refused.value.pointer == "/properties/b/items/minProperties"
