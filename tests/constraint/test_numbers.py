from __future__ import annotations

import json
import math
import random
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.constraint.json.decimals import number
from app.constraint.json.multiples import integer
from app.constraint.json.ranges import Bound, Interval
from app.constraint.language.expressions import ExpressionPool
from app.constraint.limits import Limits
from app.core.errors import UnsatisfiableSchema, UnsupportedSchema
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker
from tests.wide import many

LIMITS = Limits()
FLOATS = st.floats(-1e18, 1e18, allow_nan=False).map(lambda value: value + 0.0)


def integers(low: int | None, high: int | None, factor: int = 1) -> Walker:
    pool = ExpressionPool()
    lower = None if low is None else Bound(low, False)
    upper = None if high is None else Bound(high, False)
    return Walker(pool, integer(pool, Interval(lower, upper), LIMITS, factor))


@given(st.integers(-1200, 1200), st.integers(0, 700), st.integers(1, 40))
@settings(max_examples=40)
def test_a_range_holds_the_multiples_in_it_and_nothing_else(
    low: int, size: int, factor: int
) -> None:
    walker = integers(low, low + size, factor)
    for candidate in range(low - 15, low + size + 15):
        inside = low <= candidate <= low + size and candidate % factor == 0
        assert walker.accepts(str(candidate)) == inside
    assert not walker.accepts("-0")
    assert not walker.accepts("007")


@given(st.integers(-(10**17), 10**17), st.integers(0, 10**17), st.data())
@settings(max_examples=60)
def test_wide_ranges_are_right_at_their_ends(low: int, size: int, data: st.DataObject) -> None:
    high = low + size
    walker = integers(low, high)
    inside = data.draw(st.integers(low, high))
    for candidate in (low, high, inside):
        assert walker.accepts(str(candidate))
    for candidate in (low - 1, high + 1, 10 * high + 1 if high > 0 else high + 1):
        assert not walker.accepts(str(candidate))


@pytest.mark.parametrize("factor", [3, 7, 10, 60, 101, 997, 1000, 65_536, 123_457])
def test_multiples_are_followed_over_wide_ranges(factor: int) -> None:
    walker = integers(None, None, factor)
    for multiple in (0, factor, -factor, factor * 123_456_789_012, 10**17 // factor * factor):
        assert walker.accepts(str(multiple))
        assert not walker.accepts(str(multiple + 1))


def test_the_safe_integers_of_javascript_are_cheap() -> None:
    pool = ExpressionPool()
    safe = Bound(9007199254740991, False)
    integer(pool, Interval(Bound(-9007199254740991, False), safe), LIMITS)
    assert len(pool) < 300
    walker = integers(-9007199254740991, 9007199254740991)
    assert walker.accepts("-9007199254740991")
    assert not walker.accepts("9007199254740992")


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"minimum": 1.5}, ["2", "100"], ["1", "0", "-2"]),
        ({"exclusiveMinimum": 2, "maximum": 4.9}, ["3", "4"], ["2", "5"]),
        ({"maximum": -1e17}, ["-100000000000000000"], ["-99999999999999999", "0"]),
        ({"minimum": 1e308}, [str(int(1e308)), "9" * 309], [str(int(1e308) - 1)]),
        ({"multipleOf": 5.0}, ["0", "-15"], ["7"]),
    ],
)
def test_bounds_of_integers_may_be_floats(
    schema: dict[str, Any], inside: list[str], outside: list[str]
) -> None:
    walker = Walker.of(JsonSchema({"type": "integer", **schema}))
    assert [text for text in inside if not walker.accepts(text)] == []
    assert [text for text in outside if walker.accepts(text)] == []


@given(FLOATS, FLOATS, st.booleans(), st.integers(0, 10**6))
@settings(max_examples=many(120, 4))
def test_every_bounded_number_is_valid_after_rounding(
    first: float, second: float, exclusive: bool, seed: int
) -> None:
    low, high = sorted((first, second))
    assume(high - low > 1e-9 and math.nextafter(low, high) < high)
    prefix = "exclusiveM" if exclusive else "m"
    schema = {"type": "number", f"{prefix}inimum": low, f"{prefix}aximum": high}
    walker = Walker.of(JsonSchema(schema))
    validator = jsonschema.Draft202012Validator(schema)
    rng = random.Random(seed)
    for _ in range(10):
        assert validator.is_valid(json.loads(walker.sample(rng, steps=30)))
    for text in (f"{low:.18f}", f"{high:.18f}", f"{(low + high) / 2:.12f}", "0", "-1", "1.5"):
        if walker.accepts(text):
            assert validator.is_valid(json.loads(text))


@pytest.mark.parametrize("bound", [0.01, 0.1, 2.5, 1, 0.3, 1e-7, 123456.789])
def test_an_inclusive_bound_is_itself_admitted_as_it_is_written(bound: float) -> None:
    written = f"{bound:.7f}".rstrip("0").rstrip(".")
    assert Walker.of(JsonSchema({"type": "number", "minimum": bound})).accepts(written)
    assert Walker.of(JsonSchema({"type": "number", "maximum": bound})).accepts(written)
    assert not Walker.of(JsonSchema({"type": "number", "exclusiveMinimum": bound})).accepts(written)
    assert not Walker.of(JsonSchema({"type": "number", "exclusiveMaximum": bound})).accepts(written)


@given(st.decimals(-1000, 1000, places=3))
@settings(max_examples=many(100, 4))
def test_decimals_are_compared_as_decimals(value: Any) -> None:
    pool = ExpressionPool()
    walker = Walker(pool, number(pool, Interval(Bound(-12.5, False), Bound(99.875, True)), LIMITS))
    text = str(value)
    if not re.match(r"-0\.?0*$", text):
        assert walker.accepts(text) == (-12.5 <= value < 99.875)


def test_bounds_beyond_the_digits_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedSchema, match="minimum"):
        Walker.of(JsonSchema({"type": "number", "minimum": 1e-300, "maximum": 1e-200}))
    with pytest.raises(UnsatisfiableSchema):
        Walker.of(JsonSchema({"type": "number", "minimum": 2, "maximum": 1}))


def test_a_fraction_of_many_places_is_followed() -> None:
    walker = Walker.of(JsonSchema({"type": "number", "multipleOf": 0.123456789}))
    assert walker.accepts("0.370370367")
    assert walker.accepts("123456.789")
    assert not walker.accepts("0.370370368")
    assert not walker.accepts("1")
