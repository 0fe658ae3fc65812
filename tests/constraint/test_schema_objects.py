from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest

from app.core.errors import InvalidSchema, UnsatisfiableSchema, UnsupportedSchema
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker


def closed(schema: Any, whitespace: str = "spaced") -> Walker:
    return Walker.of(JsonSchema(schema, close_objects=True, whitespace=whitespace))


def test_members_come_in_the_order_of_properties_and_optional_ones_may_be_left_out() -> None:
    names = ["a", "b", "c", "d"]
    schema = {
        "properties": {name: {"const": 1} for name in names},
        "required": ["c"],
        "type": "object",
    }
    walker = closed(schema)
    for size in range(5):
        for chosen in combinations(names, size):
            assert walker.accepts_value(dict.fromkeys(chosen, 1)) == ("c" in chosen)
    assert not walker.accepts('{"c": 1, "a": 1}')
    assert not walker.accepts('{"a": 1, "a": 1, "c": 1}')


@pytest.mark.parametrize(
    ("schema", "open_to_others"),
    [
        ({"type": "object"}, True),
        ({}, True),
        (True, True),
        ({"type": "object", "properties": {}}, False),
        ({"type": "object", "properties": {}, "additionalProperties": True}, True),
        ({"type": "object", "properties": {}, "additionalProperties": {"type": "null"}}, False),
    ],
)
def test_silent_objects_are_closed_only_where_they_declare_properties(
    schema: Any, open_to_others: bool
) -> None:
    assert closed(schema).accepts('{"x": 1}') == open_to_others
    assert closed(schema).accepts("{}")


def test_closing_sees_all_parts_of_an_all_of() -> None:
    parts = [{"properties": {"a": {"type": "null"}}}, {"properties": {"b": {"type": "null"}}}]
    walker = closed({"type": "object", "allOf": parts})
    assert walker.accepts('{"a": null, "b": null}')
    assert not walker.accepts('{"c": null}')


def test_required_names_that_are_not_declared_are_written_last() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["z"]}
    assert closed(schema).accepts('{"a": null, "z": [1]}')
    assert not closed(schema).accepts('{"a": null}')
    with pytest.raises(UnsatisfiableSchema):
        closed({**schema, "additionalProperties": False})


def test_compact_text_is_compact_everywhere() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [[1, {"b": 2}]]}, "c": {}}}
    walker = closed(schema, "compact")
    assert walker.accepts('{"a":[1,{"b":2}],"c":[1,2]}')
    assert not walker.accepts('{"a": [1, {"b": 2}]}')


def test_any_of_beside_properties_is_distributed() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    walker = closed(schema)
    assert [walker.accepts(t) for t in ('{"a": 1}', '{"b": 1}', "{}")] == [True, True, False]


def test_a_reference_beside_keywords_holds_together_with_them() -> None:
    walker = closed({"$defs": {"x": {"type": "integer"}}, "$ref": "#/$defs/x", "minimum": 5})
    assert walker.accepts("5")
    assert not walker.accepts("4")


def test_the_cost_of_an_object_is_linear_in_its_optional_members() -> None:
    def nodes(count: int) -> int:
        members = {f"name{index}": {"type": "boolean"} for index in range(count)}
        return len(closed({"type": "object", "properties": members}).pool)

    assert nodes(400) - nodes(200) <= 2.1 * (nodes(200) - nodes(100))


@pytest.mark.parametrize("name", ["a/b~c", 'q"', "Zürich", "\u0001", ""])
def test_names_and_pointers_are_escaped(name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "null"}}, "required": [name]}
    assert closed(schema).accepts_value({name: None})
    token = name.replace("~", "~0").replace("/", "~1").replace('"', "%22")
    walker = closed({"properties": {name: {"const": 7}}, "$ref": f"#/properties/{token}"})
    assert walker.accepts("7")


def test_recursive_references_have_no_depth_limit() -> None:
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["children"],
    }
    walker = closed(tree)
    value: Any = {"children": []}
    for _ in range(100):
        value = {"children": [value, {"children": []}]}
    assert walker.accepts_value(value)
    assert not walker.accepts('{"children": [{}]}')


def test_mutual_recursion_and_shared_definitions_are_built_once() -> None:
    schema = {
        "$defs": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/b"}},
            "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]},
        },
        "$ref": "#/$defs/a",
    }
    assert closed(schema).accepts("[null, [[], [null]]]")


def test_recursion_without_an_end_satisfies_nothing() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    assert closed(schema).is_empty


def test_a_long_chain_of_references_is_no_deep_recursion() -> None:
    links = {
        f"n{index}": {
            "type": "object",
            "properties": {"next": {"$ref": f"#/$defs/n{index + 1}"}},
            "required": ["next"],
        }
        for index in range(2000)
    }
    schema = {"$defs": {**links, "n2000": {"type": "null"}}, "$ref": "#/$defs/n0"}
    walker = closed(schema)
    assert walker.accepts('{"next": ' * 2000 + "null" + "}" * 2000)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#anchor"},
    ],
)
def test_references_that_lead_nowhere_are_invalid(schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        closed(schema)


@pytest.mark.parametrize("reference", ["other.json", "https://example.org/x#/a"])
def test_other_references_are_refused_by_name(reference: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        closed({"properties": {"a": {"$ref": reference}}})
    assert (caught.value.keyword, caught.value.pointer) == ("$ref", "/properties/a/$ref")


def test_the_schemas_own_identifier_is_a_local_reference() -> None:
    schema = {
        "$id": "https://example.org/s.json",
        "$defs": {"x": {"const": 1}},
        "$ref": "https://example.org/s.json#/$defs/x",
    }
    assert closed(schema).accepts("1")


def test_arrays_with_first_items_and_bounds() -> None:
    schema = {
        "type": "array",
        "prefixItems": [{"type": "null"}, {"type": "boolean"}],
        "items": {"const": 1},
        "minItems": 1,
        "maxItems": 3,
    }
    walker = closed(schema)
    good = ["[null]", "[null, true]", "[null, false, 1]"]
    bad = ["[]", "[1]", "[null, 1]", "[null, true, 1, 1]", "[null, true, 2]"]
    assert [walker.accepts(text) for text in good] == [True] * len(good)
    assert [walker.accepts(text) for text in bad] == [False] * len(bad)


def test_constants_keep_the_order_of_their_keys() -> None:
    value = {"b": 1, "a": [1.0, -0.0, 1e22, "é\n"]}
    text = json.dumps(value, ensure_ascii=False)
    assert closed({"const": value}).accepts(text)
