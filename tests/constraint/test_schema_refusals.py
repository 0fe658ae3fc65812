from __future__ import annotations

from typing import Any

import pytest

from app.constraint.limits import Limits
from app.constraint.program import compile_program
from app.core.composite import Composite, Either
from app.core.errors import (
    ConstraintTooComplex,
    InvalidSchema,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker


def built(schema: Any, limits: Limits | None = None) -> Walker:
    return Walker.of(JsonSchema(schema, close_objects=True), limits)


REFUSED = {
    "uniqueItems": {
        "uniqueItems": True,
        "minItems": 3,
        "prefixItems": [{"type": "string"}, {"type": "boolean"}, {"const": 1}],
        "items": False,
    },
    "not/uniqueItems": {"not": {"uniqueItems": True}},
    "not/unevaluatedItems": {"not": {"unevaluatedItems": False}},
    "not/unevaluatedProperties": {"not": {"unevaluatedProperties": False}},
    "minProperties": {"minProperties": 3, "propertyNames": {"pattern": "^a{0,150}$"}},
    "$ref": {"$ref": "https://example.org/other.json"},
    "$dynamicRef": {
        "$dynamicRef": "#a",
        "$defs": {"x": {"$dynamicAnchor": "a"}, "y": {"$dynamicAnchor": "a"}},
    },
}


@pytest.mark.parametrize("place", REFUSED)
def test_keywords_that_cannot_be_enforced_are_refused_by_name_and_place(place: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        built({"type": "object", "properties": {"x": REFUSED[place]}})
    assert caught.value.keyword == place.rpartition("/")[2]
    assert caught.value.pointer == f"/properties/x/{place}"


DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}


def test_the_negation_of_a_keyword_unknown_to_the_draft_is_enforced_with_a_note() -> None:
    assert not built({**DRAFT_4, "const": 1}).accepts("2")
    walker = built({**DRAFT_4, "not": {"const": 1}})
    assert walker.accepts("2")
    assert not walker.accepts("1")
    program = compile_program(JsonSchema({**DRAFT_4, "oneOf": [{"const": "a"}, {"const": "b"}]}))
    assert {(each.pointer, each.keyword, each.inexact) for each in program.relaxed} == {
        (f"/oneOf/{number}/const", "const", True) for number in range(2)
    }
    assert not compile_program(JsonSchema({"oneOf": [{"const": "a"}, {"const": "b"}]})).relaxed
    part = JsonSchema({**DRAFT_4, "type": "object", "not": {"const": 1}}, subject="of f")
    program = compile_program(Composite(Either((part, JsonSchema({"type": "integer"})))))
    assert [(each.subject, each.pointer) for each in program.relaxed] == [("of f", "/not/const")]


def test_a_tag_that_the_draft_does_not_know_settles_nothing() -> None:
    tagged = {"properties": {"a": {"const": 2}}, "required": ["a"]}
    schema = {"properties": {"a": {"enum": [1]}}, "required": ["a"], "not": tagged}
    assert built({**schema, "type": "object"}).accepts('{"a": 1}')
    later = built({**schema, "type": "object", **DRAFT_4})
    assert later.accepts('{"a": 1}')
    assert later.pool.inexact


def test_alternatives_that_only_an_unknown_keyword_tells_apart_overlap() -> None:
    ways = [
        {"type": "object", "required": ["a"], "properties": {"a": {"const": n}}} for n in (1, 2)
    ]
    assert built({"oneOf": ways}).accepts('{"a": 1}')
    later = built({"oneOf": ways, **DRAFT_4})
    assert later.accepts('{"a": 1}')
    assert {each.keyword for each in later.pool.inexact} == {"const"}


@pytest.mark.parametrize("draft", ["draft-03/schema#", "draft-03/schema"])
def test_older_dialects_are_refused(draft: str) -> None:
    with pytest.raises(UnsupportedSchema):
        built({"$schema": f"http://json-schema.org/{draft}"})
    with pytest.raises(UnsupportedSchema):
        built({"$schema": "https://example.org/own-metaschema"})


@pytest.mark.parametrize(
    "schema",
    [
        {"uniqueItems": False},
        {"type": "string", "uniqueItems": True, "minProperties": 3, "minimum": 7},
        {"minProperties": 0, "patternProperties": {}, "propertyNames": True},
        {"if": {"type": "null"}},
        {"then": False, "else": False, "minContains": 3},
        {"x-order": 3, "nullable": True, "discriminator": {"propertyName": "x"}},
        {"title": "t", "description": "d", "default": 1, "examples": [2], "$comment": "c"},
        {"format": "int32", "contentEncoding": "base64", "readOnly": True, "deprecated": True},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://e.org/s"},
        {"oneOf": [{"type": "string"}]},
    ],
)
def test_keywords_that_assert_nothing_are_no_obstacle(schema: dict[str, Any]) -> None:
    assert built(schema).accepts('"a"')


@pytest.mark.parametrize(
    ("pointer", "schema"),
    [
        ("/type", {"type": "text"}),
        ("/properties", {"properties": []}),
        ("/properties/a", {"properties": {"a": 1}}),
        ("/required", {"required": "a"}),
        ("/anyOf", {"anyOf": []}),
        ("/minLength", {"minLength": -1}),
        ("/minimum", {"minimum": "1"}),
        ("/multipleOf", {"multipleOf": 0}),
        ("/enum", {"enum": {}}),
        ("/allOf/0/items", {"allOf": [{"items": 1}]}),
        ("", ["not", "a", "schema"]),
        ("", {"const": float("inf")}),
    ],
)
def test_wrongly_shaped_schemas_are_invalid_at_their_place(pointer: str, schema: Any) -> None:
    with pytest.raises(InvalidSchema) as caught:
        built(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"enum": []},
        {"type": "string", "const": 1},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "string", "minLength": 2, "maxLength": 1},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"allOf": [{"type": "string"}, {"type": "null"}]},
    ],
)
def test_unsatisfiable_schemas_are_refused(schema: Any) -> None:
    with pytest.raises(UnsatisfiableSchema):
        built(schema)


def test_enum_keeps_the_values_that_its_siblings_admit() -> None:
    values = ["abc", "b", 5, 1, 1.0, True, None, {"a": 1}, {"a": "x"}, [1], [1, 2]]
    walker = built(
        {
            "enum": values,
            "pattern": "^a",
            "minimum": 2,
            "properties": {"a": {"type": "integer"}},
            "maxItems": 1,
        }
    )
    kept = ["abc", 5, True, None, {"a": 1}, [1]]
    assert [value for value in values if walker.accepts_value(value)] == kept


def test_enum_tells_true_from_one_and_takes_duplicates() -> None:
    walker = built({"allOf": [{"enum": [1, 1, True, "a"]}, {"enum": [1.0, "a", "a"]}]})
    assert [text for text in ("1", "true", '"a"') if walker.accepts(text)] == ["1", '"a"']


def test_a_large_enum_is_built() -> None:
    schema = {"type": "string", "enum": [f"value-{index}" for index in range(20_000)]}
    walker = built({"allOf": [schema, schema]})
    assert walker.accepts('"value-19999"')
    assert not walker.accepts('"value-20000"')


def nested(depth: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        nested(5_000),
        {"enum": list(range(300_000))},
        {"const": "x" * (5 << 20)},
        {"allOf": [{"anyOf": [{"minimum": 2 * n}, {"maximum": n}]} for n in range(20)]},
    ],
)
def test_schemas_beyond_the_limits_are_too_complex(schema: Any) -> None:
    with pytest.raises(ConstraintTooComplex):
        built(schema)


def test_too_many_properties_are_refused_by_their_number() -> None:
    properties = {f"p{number}": True for number in range(20_000)}
    with pytest.raises(ConstraintTooComplex, match=r"an object of 20000 properties \("):
        built({"type": "object", "properties": properties})


def test_nesting_within_the_limit_needs_no_deep_stack() -> None:
    assert built(nested(127)).accepts("[" * 127 + "]" * 127)


@pytest.mark.parametrize(
    ("schema", "pointer", "shown"),
    [
        ({"pattern": ["a"]}, "/pattern", '["a"]'),
        ({"format": {"a": "b"}}, "/format", '{"a": "b"}'),
        ({"minLength": [3]}, "/minLength", "[3]"),
        ({"type": ["string", "strin"]}, "/type/1", '"strin"'),
        ({"required": ["a", 1]}, "/required/1", "1"),
        ({"properties": {"a/b": 7}}, "/properties/a~1b", "7"),
        ({"allOf": [{}, 7]}, "/allOf/1", "7"),
    ],
)
def test_a_wrong_value_is_shown_whole_or_by_its_wrong_part(
    schema: Any, pointer: str, shown: str
) -> None:
    with pytest.raises(InvalidSchema) as caught:
        compile_program(JsonSchema(schema))
    assert caught.value.pointer == pointer
    assert f"not {shown} " in str(caught.value)
