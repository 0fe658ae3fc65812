from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import ConstraintError, UnsatisfiableSchema
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker
from tests.wide import many

NAMES = st.sampled_from(["a", "b", "é"])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -3, 2.5, 1.0, "", "a", "abc", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
)
COUNTS = st.integers(0, 3)


def schemas() -> st.SearchStrategy[Any]:
    """Random schemas of common keywords."""
    simple = {
        "type": st.sampled_from(
            ["string", "integer", "number", "object", "array", "null", ["string", "null"]]
        ),
        "minimum": st.integers(-2, 2),
        "exclusiveMaximum": st.sampled_from([2, 2.5]),
        "multipleOf": st.integers(1, 3),
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "pattern": st.sampled_from(["a", "^[a-c]*$", "^é|b"]),
        "enum": st.lists(VALUES, min_size=1, max_size=4),
        "const": VALUES,
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "required": st.lists(NAMES, max_size=2, unique=True),
    }

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        nested = {
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
        }
        return some_of({**simple, **nested})

    return st.recursive(st.booleans() | some_of(simple), grow, max_leaves=4)


def some_of(keywords: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({n: keywords[n] for n in names}))


@given(schemas(), st.lists(VALUES, max_size=8), st.booleans(), st.integers(0, 10**6))
@settings(max_examples=many(400))
def test_random_schemas_agree_with_the_jsonschema_library(
    schema: Any, values: list[Any], close: bool, seed: int
) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    try:
        walker = Walker.of(JsonSchema(schema, close_objects=close))
    except UnsatisfiableSchema:
        assert close or not any(validator.is_valid(value) for value in values)
        return
    rng = random.Random(seed)
    if not walker.is_empty:
        for _ in range(5):
            text = walker.sample(rng, steps=20).decode()
            assert validator.is_valid(json.loads(text)), text
    for value in values:
        if walker.accepts_value(value):
            assert validator.is_valid(value), value
        elif validator.is_valid(value) and not close and value != 1 and not _has_float(value):
            assert walker.accepts_in_some_order(value), value


def _has_float(value: Any) -> bool:
    """Whether ``value`` has 1.0, an integer to JSON Schema, which answers write as 1."""
    return "1.0" in json.dumps(value)


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def test_the_schema_of_a_drafts_schemas_need_not_be_sent() -> None:
    schema = {
        "$schema": DRAFT_7,
        "type": "object",
        "properties": {
            "s": {"$ref": DRAFT_7},
            "n": {"$ref": f"{DRAFT_7}/definitions/nonNegativeInteger"},
            "again": {"$ref": "#"},
        },
    }
    walker = Walker.of(JsonSchema(schema))
    validator = jsonschema.Draft7Validator(schema)
    for value in (
        {"s": {"type": "string", "minLength": 3}},
        {"s": {"type": "strnig"}},
        {"s": {"properties": {"a": {"items": [True, {"not": {}}]}}}},
        {"s": {"properties": {"a": {"items": [True, 3]}}}},
        {"n": 0},
        {"n": -1},
        {"again": {"again": {"n": 1}}},
        {"again": {"again": {"n": -1}}},
    ):
        assert walker.accepts_in_some_order(value) is validator.is_valid(value), value


def test_a_resource_inside_has_a_draft_of_its_own() -> None:
    old = {
        "$id": "http://e.org/old",
        "$schema": DRAFT_7,
        "definitions": {"i": {"type": "integer"}},
        "properties": {"a": {"$ref": "#/definitions/i", "minimum": 5}},
    }
    new = {"$ref": "http://e.org/old#/definitions/i", "minimum": 5}
    schema = {"$defs": {"o": old}, "properties": {"o": {"$ref": old["$id"]}, "n": new}}
    walker = Walker.of(JsonSchema(schema))
    assert walker.accepts('{"o": {"a": 1}}')  # draft 7 ignores keywords beside $ref
    assert not walker.accepts('{"o": {"a": "x"}}')
    assert walker.accepts('{"n": 5}')
    assert not walker.accepts('{"n": 1}')
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://e.org/4"}
    schema = {"$defs": {"4": {**draft_4, "minimum": 3, "exclusiveMinimum": True}}}
    walker = Walker.of(JsonSchema({**schema, "$ref": "http://e.org/4", "type": "integer"}))
    assert walker.accepts("4")
    assert not walker.accepts("3")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("/$defs/X", "'/$defs/X' refers to another document; write '#/$defs/X'"),
        ("$defs/X", "write '#/$defs/X'"),
        ("https://e.org/x", "'https://e.org/x' is another document"),
        ("#/$defs/Y", "$ref '#/$defs/Y' does not resolve"),
        ("#y", "$ref '#y' names an anchor that does not exist"),
    ],
)
def test_a_reference_that_leads_nowhere_is_quoted(reference: str, message: str) -> None:
    schema = {"properties": {"a": {"$ref": reference}}, "$defs": {"X": {"type": "string"}}}
    with pytest.raises(ConstraintError) as caught:
        Walker.of(JsonSchema(schema))
    assert message in str(caught.value)
    assert getattr(caught.value, "pointer", None) == "/properties/a/$ref"


def test_the_dialect_of_openapi_is_2020_12() -> None:
    dialect = {"$schema": "https://spec.openapis.org/oas/3.1/dialect/base"}
    schema = {**dialect, "type": "string", "discriminator": {"propertyName": "x"}, "maxLength": 1}
    assert Walker.of(JsonSchema(schema)).accepts('"a"')
