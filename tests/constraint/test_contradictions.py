"""Errors for schemas that nothing satisfies."""

from __future__ import annotations

import random
from typing import Any

import pytest

from app.constraint.limits import Limits
from app.constraint.program import compile_program
from app.constraint.schema import contradiction
from app.constraint.schema.contradiction import Trials, find_contradiction
from app.constraint.schema.document import escape_token
from app.constraint.schema.edits import edited
from app.core.errors import UnsatisfiableSchema
from app.core.specs import JsonSchema
from tests.conformance.random_schemas import random_schema
from tests.wide import many

CLASHES: list[tuple[dict[str, Any], set[str]]] = [
    ({"type": "string", "minLength": 5, "maxLength": 3}, {"minLength", "maxLength"}),
    ({"type": "string", "enum": [1]}, {"type", "enum"}),
    ({"type": "string", "pattern": "^a{3}$", "maxLength": 2}, {"pattern", "maxLength"}),
    ({"type": "string", "format": "date", "pattern": "^x"}, {"format", "pattern"}),
    ({"type": "integer", "minimum": 2, "maximum": 1}, {"minimum", "maximum"}),
    (
        {"type": "number", "multipleOf": 10, "minimum": 1, "maximum": 9},
        {"multipleOf", "minimum", "maximum"},
    ),
    (
        {
            "type": "object",
            "properties": {"a": True},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        {"required", "additionalProperties"},
    ),
    (
        {"allOf": [{"const": 1}, {"enum": [2, 3]}]},
        {"allOf/0/const", "allOf/1/enum"},
    ),
    (
        {
            "allOf": [
                {
                    "type": "object",
                    "properties": {name: {"type": "string"}},
                    "required": [name],
                    "additionalProperties": False,
                }
                for name in "ab"
            ]
        },
        {"allOf/0/required", "allOf/1/additionalProperties"},
    ),
    ({"type": "array", "minItems": 2, "maxItems": 1}, {"minItems", "maxItems"}),
    ({"enum": []}, {"enum"}),
    ({"not": {}}, {"not"}),
]


def message_of(schema: Any) -> UnsatisfiableSchema:
    with pytest.raises(UnsatisfiableSchema) as caught:
        compile_program(JsonSchema(schema, close_objects=True))
    return caught.value


@pytest.mark.parametrize(("clash", "keywords"), CLASHES)
def test_an_error_names_the_smallest_empty_subschema_and_what_clashes_in_it(
    clash: dict[str, Any], keywords: set[str]
) -> None:
    for number in range(4):
        rng = random.Random(number)
        schema, pointer = buried(clash, rng)
        error = message_of(schema)
        assert error.pointer == pointer, schema
        said = error.message
        assert said.startswith(f"no value satisfies the schema at {pointer or 'the root'}: ")
        named = said.partition(": ")[2].partition(" contradict")[0].partition(" allows")[0]
        assert {each for each in named.split("'") if each not in ("", ", ", " and ")} == keywords


def buried(clash: Any, rng: random.Random) -> tuple[Any, str]:
    """A schema with ``clash`` at a place where it must hold, and the pointer to it."""
    schema, pointer = clash, ""
    definitions: dict[str, Any] = {}
    for depth in range(rng.randrange(4)):
        name = rng.choice(["a", "b/c", "d~"])
        way = rng.choice(["member", "item", "prefix", "all", "reference"])
        if way == "member":
            others = {f"p{n}": random_leaf(rng) for n in range(rng.randrange(3))}
            schema = {
                "type": "object",
                "description": "has others",
                "properties": {**others, name: schema},
                "required": [name],
            }
            pointer = f"/properties/{escape_token(name)}{pointer}"
        elif way == "item":
            schema = {"type": "array", "minItems": 1, "maxItems": 4, "items": schema}
            pointer = f"/items{pointer}"
        elif way == "prefix":
            schema = {"type": "array", "minItems": 2, "prefixItems": [random_leaf(rng), schema]}
            pointer = f"/prefixItems/1{pointer}"
        elif way == "all":
            schema = {"title": "all", "allOf": [{"title": "t"}, schema]}
            pointer = f"/allOf/1{pointer}"
        elif not pointer.startswith("/$defs"):
            definitions[f"d{depth}"] = schema
            schema = {"$ref": f"#/$defs/d{depth}"}
            pointer = f"/$defs/d{depth}{pointer}"
    if definitions and "/$defs" in pointer:
        pointer = pointer[pointer.rindex("/$defs") :]
    return ({**schema, "$defs": definitions} if definitions else schema), pointer


def random_leaf(rng: random.Random) -> Any:
    return rng.choice([{"type": "string"}, {"type": "integer", "minimum": 3}, {"enum": [1, "a"]}])


def test_the_named_subschema_is_empty_by_itself_and_can_be_relaxed() -> None:
    found = 0
    for seed in range(many(400, 16)):
        rng = random.Random(seed)
        schema = {"allOf": [random_schema(rng), random_schema(rng)]}
        clash = find_contradiction(schema, Limits(), close=False)
        if clash is None:
            continue
        found += 1
        trials = Trials(Limits(), close=False)
        assert trials.run(schema, clash.pointer) == "empty", schema
        if clash.edits:
            assert compile_program(JsonSchema(schema, relax=True)).relaxed, schema
    assert found > many(40, 16)


def test_a_schema_that_something_satisfies_has_no_contradiction() -> None:
    assert find_contradiction({"type": "string", "minLength": 2}, Limits(), close=True) is None
    assert find_contradiction(False, Limits(), close=True) is None
    assert message_of(False).pointer is None


def test_a_contradiction_in_a_large_schema_is_found_in_few_trials() -> None:
    tree: Any = {"type": "string"}
    for depth in range(5):
        tree = {"type": "object", "properties": {f"{depth}{n}": tree for n in range(3)}}
    bad = {"type": "string", "minLength": 3, "maxLength": 1}
    schema = {
        "type": "object",
        "properties": {**{f"p{n}": tree for n in range(3)}, "bad": bad},
        "required": ["bad", "p0"],
    }
    assert message_of(schema).pointer == "/properties/bad"


def test_an_anyof_without_a_way_names_one_and_a_recursion_without_end_is_one() -> None:
    ways = [{"type": "string", "enum": [1]}, {"type": "integer", "enum": ["a"]}]
    assert message_of({"anyOf": ways}).pointer == "/anyOf/0"
    endless = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}
    error = message_of({"$ref": "#/$defs/n", "$defs": {"n": {**endless, "required": ["next"]}}})
    assert error.pointer == "/$defs/n"
    assert "'properties/next/$ref' and 'required'" in error.message


def test_an_empty_alternative_alone_is_not_the_cause() -> None:
    """``oneOf`` is not mistaken for the ``anyOf`` beside it, either."""
    void = {"required": ["a"], "const": [], "minItems": 2}
    schema = {"anyOf": [{"const": 1}, {"const": 2}], "oneOf": [{"const": 3}, void]}
    with pytest.raises(UnsatisfiableSchema) as raised:
        compile_program(JsonSchema(schema))
    assert raised.value.pointer == ""
    b = {"anyOf": [{"enum": ["c"]}, False], "oneOf": [{"type": "array"}, {"maxItems": 3}, void]}
    beside = [{"properties": {"b": {"enum": [2]}}, "required": ["b"], "type": "object"}]
    nested = {"type": "object", "properties": {"b": b}, "required": ["b"], "allOf": beside}
    with pytest.raises(UnsatisfiableSchema, match="no value satisfies the schema at"):
        compile_program(JsonSchema(nested))


def test_a_search_that_has_no_steps_left_copies_the_schema_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies: list[Any] = []

    def copied(schema: Any, *edits: Any) -> Any:
        copies.append(edited(schema, *edits))
        return copies[-1]

    monkeypatch.setattr(contradiction, "edited", copied)
    properties: dict[str, Any] = {f"p{n}": {"type": "string", "maxLength": 5} for n in range(1_000)}
    properties["bad"] = {"type": "string", "minLength": 3, "maxLength": 1}
    schema = {"type": "object", "properties": properties, "required": ["bad"]}
    monkeypatch.setattr(contradiction, "_STEPS", 200_000)
    find_contradiction(schema, Limits(), close=False)
    assert len(copies) < 10
