from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constraint.json.text import JsonText, character
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import ExpressionPool
from app.constraint.limits import Limits
from app.core.specs import JsonObject, JsonSchema
from tests.constraint.walks import Walker
from tests.wide import many

ANYTHING = Walker.of(JsonSchema(True))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
@settings(max_examples=many(200, 4))
def test_any_value_has_every_value_as_json_dumps_writes_it(value: object) -> None:
    assert ANYTHING.accepts_value(value)
    assert ANYTHING.accepts(json.dumps(value))


@pytest.mark.parametrize("value", [0.5, -1.25, 1e-07, 1e22, 1.5e300, 5e-300, 0.30000000000000004])
def test_any_value_has_floats_as_json_dumps_writes_them(value: float) -> None:
    assert ANYTHING.accepts_value(value)


@pytest.mark.parametrize("seed", range(40))
def test_every_text_of_any_value_is_json_that_holds_only_finite_numbers(seed: int) -> None:
    text = ANYTHING.sample(random.Random(seed), steps=80).decode()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert "Infinity" not in json.dumps(json.loads(text, parse_constant=refuse))


@pytest.mark.parametrize(
    "text", [b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf5\x80\x80\x80"']
)
def test_strings_are_well_formed_utf8(text: bytes) -> None:
    assert not ANYTHING.accepts(text)


@pytest.mark.parametrize(
    "text", ['"\t"', '"\\x41"', '"\\ud800"', '"\\udc00"', '"\\ud800\\u0041"', '"a']
)
def test_strings_have_no_control_characters_and_no_lone_surrogates(text: str) -> None:
    assert not ANYTHING.accepts(text)


@pytest.mark.parametrize(
    "text", ["[1,2]", "[1 ]", "[1, ]", "01", "-0", "1.", ".5", "1e400", "{1: 2}"]
)
def test_there_is_one_form_and_no_loose_json(text: str) -> None:
    assert not ANYTHING.accepts(text)


@pytest.mark.parametrize("spelled", ["a", "é", "😀", "\\n", "\\u00e9", "\\ud83d\\ude00", "\\/"])
def test_every_spelling_of_a_character_counts_once(spelled: str) -> None:
    walker = Walker.of(JsonSchema({"type": "string", "minLength": 2, "maxLength": 2}))
    assert walker.accepts(f'"{spelled}{spelled}"')
    assert not walker.accepts(f'"{spelled}"')
    assert not walker.accepts(f'"{spelled}{spelled}{spelled}"')


def test_the_character_is_one_expression_of_the_pool() -> None:
    pool = ExpressionPool()
    assert character(pool) == character(pool) == character(pool)


def test_a_free_key_never_spells_a_taken_name() -> None:
    pool = ExpressionPool()
    text = JsonText(pool, Limits())
    names = text.names_but(["a", 'q"é'])
    walker = Walker(pool, text.free_member(names, pool.literal(b"1")))
    assert walker.accepts('"b": 1')
    assert walker.accepts('"aa": 1')
    for key in ('"a"', '"\\u0061"', '"q\\"é"', '"q\\u0022é"', '"q\\"\\u00e9"'):
        assert not walker.accepts(f"{key}: 1")


def test_json_object_admits_objects_only() -> None:
    walker = Walker.of(JsonObject())
    assert walker.accepts('{"a": [1, {"b": null}]}')
    assert walker.accepts("{}")
    assert not walker.accepts("[]")


def test_compact_text_has_no_space() -> None:
    walker = Walker.of(JsonObject(whitespace="compact"))
    assert walker.accepts('{"a":[1,2],"b":{}}')
    assert not walker.accepts('{"a": 1}')


def test_free_strings_repeat_the_character() -> None:
    pool = ExpressionPool()
    quote = pool.literal(b'"')
    expected = pool.concatenate(quote, pool.repeat(character(pool), 1, 9), quote)
    assert JsonText(pool, Limits()).string(1, 9) == expected
    assert Derivatives(pool).length(expected) == 3
