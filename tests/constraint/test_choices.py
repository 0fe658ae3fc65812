"""Choices: the continuations at a position of an answer where they are few."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from app.constraint import Compiler, JsonSchema
from app.core.choices import Choice, ChoosingState
from app.core.composite import Composite, Either, FixedText
from app.core.errors import InvalidSchema, RejectedToken, UnsupportedSchema
from app.core.json_scan import JsonScan, Place
from tests.fakes import ByteVocabulary

VOCABULARY = ByteVocabulary()
COMPILER = Compiler(VOCABULARY)


def after(schema: Any, text: str, whitespace: str = "spaced") -> ChoosingState:
    spec = JsonSchema(schema, close_objects=True, whitespace=whitespace)
    state = COMPILER.compile(spec).start()
    state.accept_bytes(text.encode())
    return state


def choice(schema: Any, text: str, whitespace: str = "spaced") -> Choice | None:
    scan = JsonScan()
    for byte in text.encode():
        scan.push(byte)
    place = scan.after_value() if scan.place is Place.NUMBER else scan.place
    return after(schema, text, whitespace).choice(place)


def ways(schema: Any, text: str, whitespace: str = "spaced") -> list[tuple[str, str, list[str]]]:
    found = choice(schema, text, whitespace)
    assert found is not None
    return [
        (way.kind, way.text.decode(), [each.decode() for each in way.texts]) for way in found.ways
    ]


def an_object(required: bool = True, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties] if required else [],
    }


def test_an_enum_is_a_choice_of_whole_values() -> None:
    schema = an_object(a={"enum": ["é", "red", True, None]})
    assert ways(schema, '{"a":') == [
        ("value", '"red"', [' "red"']),
        ("value", '"é"', [' "é"']),
        ("value", "null", [" null"]),
        ("value", "true", [" true"]),
    ]


def test_a_number_that_is_a_prefix_of_another_includes_the_text_after_it() -> None:
    schema = an_object(a={"enum": [1, 12, 3]})
    assert ways(schema, '{"a":') == [
        ("value", "1", [" 1}"]),
        ("value", "12", [" 12"]),
        ("value", "3", [" 3"]),
    ]
    found = choice(schema, '{"a":')
    assert found is not None
    assert [way.scored for way in found.ways] == [
        (b" 1,", b" 1}", b" 1]", b" 1\n"),
        (b" 12",),
        (b" 3",),
    ]
    found = choice({"enum": [1, 12]}, "")
    assert found is not None
    assert [(way.text, way.texts, way.ends_answer) for way in found.ways] == [
        (b"1", (), True),
        (b"12", (b"12",), False),
    ]


def test_many_strings_and_numbers_are_one_way_each() -> None:
    schema = an_object(a={"type": ["string", "integer", "null", "array"]})
    kinds = [(kind, texts) for kind, _, texts in ways(schema, '{"a":')]
    assert kinds[0] == ("string", [' "'])
    assert kinds[1] == ("number", [f" {each}" for each in "-0123456789"])
    assert kinds[2:] == [("array", [" ["]), ("value", [" null"])]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "string", "pattern": "^(ab|cd){40}$"},
        {"type": "string", "pattern": "^a*$"},
        {"enum": [f"value {i}" for i in range(257)]},
        {"type": "number"},
    ],
)
def test_a_set_beyond_the_bounds_is_one_way(schema: Any) -> None:
    ((kind, text, _),) = ways(schema, "")
    assert (kind, text) in (("string", ""), ("number", ""))


@pytest.mark.parametrize(
    "pattern", ["^[a-z]{1,20}$", "^[a-zA-Z0-9_]+$", "^([01]{3}-){9}x$", "^.*$"]
)
def test_too_many_values_are_detected_with_little_work(pattern: str) -> None:
    compiled = COMPILER.compile(JsonSchema({"type": "string", "pattern": pattern}))
    found = compiled.start().choice(Place.VALUE)
    assert found is not None
    assert [way.kind for way in found.ways] == ["string"]
    assert compiled.automaton.derivatives.work < 5000


def test_the_next_key_and_the_end_of_an_object_are_a_choice() -> None:
    schema = an_object(False, a={"const": 1}, b={"const": 2}, c={"const": 3})
    assert ways(schema, "{") == [
        ("key", '"a"', ['"a"']),
        ("key", '"b"', ['"b"']),
        ("key", '"c"', ['"c"']),
        ("end", "", ["}"]),
    ]
    assert ways(schema, '{"a": 1') == [
        ("key", '"b"', [', "b"']),
        ("key", '"c"', [', "c"']),
        ("end", "", ["}"]),
    ]
    free = {"type": "object", "additionalProperties": {"const": 1}}
    assert ways(free, "{") == [("any key", "", ['"']), ("end", "", ["}"])]


def test_the_branches_of_a_union_are_a_choice_where_they_differ() -> None:
    cat = an_object(kind={"const": "cat"}, lives={"const": 9})
    dog = an_object(kind={"const": "dog"})
    schema = {"anyOf": [cat, dog]}
    assert ways(schema, '{"kind":') == [
        ("value", '"cat"', [' "cat"']),
        ("value", '"dog"', [' "dog"']),
    ]


def test_a_continuation_that_is_no_value_leaves_a_choice_open() -> None:
    value = JsonSchema({"enum": [True, 5]})
    both = Composite(Either((value, FixedText("<tool_call>"))))
    state = COMPILER.compile(both).start()
    found = state.choice(Place.VALUE)
    assert found is not None
    assert [way.text for way in found.ways] == [b"5", b"true"]
    assert found.is_open


def test_the_next_item_and_the_end_of_a_list_are_a_choice() -> None:
    schema = {"type": "array", "items": {"enum": ["a", 1]}}
    assert ways(schema, "[") == [("item", "", ['"', "1"]), ("end", "", ["]"])]
    assert ways(schema, "[1") == [("item", "", [","]), ("end", "", ["]"])]
    first = after(schema, "[").choice(Place.VALUE)
    assert first is not None
    assert first.is_open, "the list could be empty"


def test_after_a_number_its_digits_may_go_on() -> None:
    found = choice(an_object(a={"type": "integer"}), '{"a": 1')
    assert found is not None
    assert found.is_open


@pytest.mark.parametrize("whitespace", ["compact", "indent:2", "flexible"])
def test_white_space_before_a_way_is_a_part_of_it(whitespace: str) -> None:
    schema = an_object(a={"enum": ["x", "y"]})
    start = '{\n  "a":' if whitespace == "indent:2" else '{"a":'
    for kind, text, texts in ways(schema, start, whitespace):
        assert kind == "value"
        assert {each.strip() for each in texts} == {text}


def test_only_one_way_is_left_where_it_is_chosen() -> None:
    schema = an_object(a={"enum": [1, 12, "x"]}, b={"type": "boolean"})
    state = after(schema, '{"a":')
    found = state.choice(Place.VALUE)
    assert found is not None
    one = next(way for way in found.ways if way.text == b"1")
    left = state.only(one)
    assert left.forced() == b' 1, "b": '
    with pytest.raises(RejectedToken):
        left.accept_bytes(b" 12")
    whole = after({"enum": [1, 12]}, "")
    found = whole.choice(Place.VALUE)
    assert found is not None
    left = whole.only(found.ways[0])
    assert left.forced() == b"1"
    left.accept_bytes(b"1")
    assert left.is_final


def test_tokens_are_found_by_how_they_begin() -> None:
    state = after({"enum": ["x"]}, "")
    spelled = [VOCABULARY.token_bytes[token] for token in state.beginning(b'",')]
    assert sorted(each or b"" for each in spelled) == [b'",', b'", ', b'", "']
    assert not len(state.beginning(b"nothing begins so"))


def test_equal_spellings_are_all_found() -> None:
    class Doubled(ByteVocabulary):
        def __init__(self) -> None:
            super().__init__()
            self._token_bytes = (*self._token_bytes, b"~")

    vocabulary = Doubled()
    state = Compiler(vocabulary).compile(JsonSchema({"enum": ["x"]})).start()
    assert isinstance(state, ChoosingState)
    assert state.beginning(b"~").tolist() == [ord("~"), vocabulary.size - 1]


def test_a_schema_may_want_a_value_drawn_as_a_whole() -> None:
    marked = {"enum": ["a", "b", None], "x-choice": "exact"}
    schema = an_object(a=marked, b={"enum": ["a", "c"]}, c={"$ref": "#/properties/a"})
    found = choice(schema, '{"a":')
    assert found is not None
    assert found.is_exact
    other = choice(schema, '{"a": "a", "b":')
    assert other is not None
    assert not other.is_exact
    wider = choice({"anyOf": [marked, {"const": 5}]}, "")
    assert wider is not None
    assert wider.is_exact
    assert not after(an_object(b={"enum": ["a", "c"]}), "").has_exact_choices


def test_an_unsupported_or_invalid_x_choice_is_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="x-choice"):
        after(an_object(a={"type": "string", "x-choice": "exact"}), "")
    with pytest.raises(UnsupportedSchema, match="x-choice"):
        after(an_object(a={"enum": [[1], [2]], "x-choice": "exact"}), "")
    with pytest.raises(InvalidSchema, match="x-choice must be 'exact'"):
        after(an_object(a={"type": "boolean", "x-choice": "best"}), "")


UNIQUE: dict[str, Any] = {
    "type": "array",
    "items": {"anyOf": [{"enum": ["a", "ab", 1, 12]}, an_object(a={"type": "boolean"})]},
    "uniqueItems": True,
    "maxItems": 4,
}
STRINGS = {
    "type": "array",
    "items": {"anyOf": [{"enum": ["a", "b", None]}, {"type": "string", "pattern": "^x"}]},
    "uniqueItems": True,
    "minItems": 3,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[", ["a", "ab", 1, 12, "{"]),
        ('["a", ', ["ab", 1, 12, "{"]),
        ('[1, "ab", {"a": true}, ', ["a", 12, "{"]),
        ('[1, {"a": true}, {"a": ', [False]),
        ('[{"a": false}, {"a": true}, ', ["a", "ab", 1, 12]),
    ],
)
def test_earlier_items_of_a_unique_list_are_no_ways(text: str, expected: list[Any]) -> None:
    found = after(UNIQUE, text).choice(Place.VALUE)
    assert found is not None
    told = [json.loads(way.text) if way.text else "{" for way in found.ways]
    assert Counter(map(json.dumps, told)) == Counter(map(json.dumps, expected))


def test_strings_of_which_some_are_used_are_one_way() -> None:
    found = after(STRINGS, '["a", null, ').choice(Place.VALUE)
    assert found is not None
    assert [(way.kind, way.text) for way in found.ways] == [("string", b"")]
    ends = after(STRINGS, '["a", null, "b"').choice(Place.NEXT_ITEM)
    assert ends is not None
    assert {way.kind for way in ends.ways} == {"item", "end"}
