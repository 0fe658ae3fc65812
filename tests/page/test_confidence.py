"""The confidence panel: links from values to the schema, and formats of probabilities."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

STRING = {"type": "string"}
DIGIT = {"type": "integer", "maximum": 9}
PART = {"type": "object", "properties": {"n": DIGIT}, "required": ["n"]}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "name": STRING}}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "name": STRING}}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": STRING,
        "a/b": {"type": "array", "items": STRING},
        "many": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
        "pair": {"prefixItems": [DIGIT, STRING], "items": {"type": "boolean"}},
        "pet": {"anyOf": [CAT, DOG]},
        "either": {"oneOf": [STRING, {"type": "null"}]},
        "tree": {"$ref": "#/$defs/Node"},
        "map": {
            "type": "object",
            "patternProperties": {"^x-": STRING},
            "additionalProperties": DIGIT,
        },
        "all": {"allOf": [{"properties": {"a": STRING}}, {"properties": {"b": DIGIT}}]},
        "numbers": {"properties": {"0": STRING}},
    },
    "$defs": {
        "Part": PART,
        "Node": {
            "properties": {"n": DIGIT, "next": {"items": {"$ref": "#/$defs/Node"}}},
        },
        "Round": {"$ref": "#/$defs/Round"},
    },
}

PLACES: list[tuple[str, Any, str]] = [
    ("", {}, ""),
    ("/name", "x", "/properties/name"),
    ("/a~1b/3", "x", "/properties/a~1b/items"),
    ("/many/0/n", 1, "/$defs/Part/properties/n"),
    ("/many/0", {"n": 1}, "/properties/many/items"),
    ("/pair/0", 1, "/properties/pair/prefixItems/0"),
    ("/pair/1", "x", "/properties/pair/prefixItems/1"),
    ("/pair/2", True, "/properties/pair/items"),
    ("/pet/kind", "cat", "/properties/pet/anyOf/0/properties/kind"),
    ("/pet/kind", "dog", "/properties/pet/anyOf/1/properties/kind"),
    ("/either", None, "/properties/either"),
    ("/tree/next/4/next/0/n", 1, "/$defs/Node/properties/n"),
    ("/map/x-1", "x", "/properties/map/patternProperties/^x-"),
    ("/map/y", 2, "/properties/map/additionalProperties"),
    ("/all/b", 2, "/properties/all/allOf/1/properties/b"),
    ("/numbers/0", "x", "/properties/numbers/properties/0"),
]
"""Pointers into an answer, the values there, and pointers to their places in the schema."""


def at(schema: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        schema = schema[int(name)] if isinstance(schema, list) else schema[name]
    return schema


def test_a_values_name_leads_to_the_schema_that_takes_it(called: Any) -> None:
    found = called(*(["place", SCHEMA, pointer, value] for pointer, value, _ in PLACES))
    assert found == [place for _, _, place in PLACES]
    validator = Draft202012Validator(SCHEMA)
    for (_, value, _), place in zip(PLACES, found, strict=True):
        assert validator.evolve(schema=at(SCHEMA, place)).is_valid(value)


def test_an_unknown_name_leads_to_the_last_known_place(called: Any) -> None:
    cases = [("/nothing/0", ""), ("/name/x/y", "/properties/name"), ("/pair/x", "/properties/pair")]
    found = called(*(["place", SCHEMA, pointer] for pointer, _ in cases))
    assert found == [place for _, place in cases]
    odd: list[Any] = [
        True,
        {"$ref": "#/$defs/Round", "$defs": {"Round": {"$ref": "#/$defs/Round"}}},
        {"$ref": "https://elsewhere.example/"},
        {"$ref": "#/%"},
        {"properties": 3, "anyOf": {}, "patternProperties": {"(": True}, "items": [1]},
    ]
    assert called(*(["place", schema, "/a/0"] for schema in odd)) == [""] * len(odd)


def test_no_probability_is_written_as_certain_that_is_not(called: Any) -> None:
    expected = {
        1: "100 %",
        0.999999: "> 99.99 %",
        0.99994: "99.99 %",
        0.9971: "99.71 %",
        0.95: "95 %",
        0.031: "3.1 %",
        0.0004: "< 0.1 %",
    }
    assert called(*(["written", "probability", each] for each in expected)) == [*expected.values()]
