from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.constraint.json.multiples import Grid, Remainders
from app.constraint.language.expressions import ExpressionPool
from app.constraint.limits import Limits
from app.constraint.schema.document import Node
from app.constraint.schema.keywords import NOT_ENUM, NOT_INTEGER, NOT_MULTIPLE_OF
from app.constraint.schema.numeric import admit_number, build_numbers
from app.core.errors import ConstraintError, UnsupportedSchema
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker
from tests.wide import many
from tools import datasets

LIMITS = Limits()
NUMBER_KEYWORDS = (
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "optional/float-overflow",
    "optional/bignum",
)
FACTORS = (0.01, 0.05, 0.25, 1.5, 6.75, 2.125, 0.3, 1e-8, 0.0001, 7, 10, 25, 512, 2.5, 12.0)
SMALL_DECIMALS = [
    sign + whole + fraction
    for sign in ("", "-")
    for whole in ("0", "1", "2", "3", "5", "12", "15", "20", "27")
    for fraction in ("", *(f".{digits}" for digits in ("0", "5", "00", "25", "50", "75", "01")))
    if sign + whole != "-0" or fraction.strip(".0")
]
Facts = dict[Any, Any]


def nodes(*schemas: Facts) -> tuple[Node, ...]:
    return tuple(Node(f"/{number}", schema) for number, schema in enumerate(schemas))


def walk(*schemas: Facts, integers_only: bool = False) -> Walker:
    pool = ExpressionPool()
    built = build_numbers(pool, nodes(*schemas), LIMITS, integers_only=integers_only)
    return Walker(pool, built)


def satisfies(value: Fraction, facts: Facts) -> bool:
    """Whether ``value`` satisfies all facts, in exact arithmetic on decimals."""
    checks: dict[Any, Callable[[Any], bool]] = {
        "minimum": lambda bound: value >= exactly(bound),
        "maximum": lambda bound: value <= exactly(bound),
        "exclusiveMinimum": lambda bound: value > exactly(bound),
        "exclusiveMaximum": lambda bound: value < exactly(bound),
        "multipleOf": lambda factor: (value / exactly(factor)).denominator == 1,
        NOT_MULTIPLE_OF: lambda factor: (value / exactly(factor)).denominator != 1,
        NOT_INTEGER: lambda _: value.denominator != 1,
        NOT_ENUM: lambda values: all(value != exactly(v) for v in values if type(v) is not str),
    }
    return all(checks[keyword](operand) for keyword, operand in facts.items())


def exactly(value: Any) -> Fraction:
    return Fraction(Decimal(repr(value)))


def holds(text: str, facts: Facts) -> bool:
    """Whether the number satisfies all facts both as a decimal and as the float it is parsed to.

    The float is taken in its shortest decimal form, as 0.1 is not a multiple of 0.1 in binary. With
    ``NOT_INTEGER`` it must not be an integer in binary, either.
    """
    exact, read = Fraction(Decimal(text)), exactly(json.loads(text))
    if NOT_INTEGER in facts and float(text).is_integer():
        return False
    return satisfies(exact, facts) and satisfies(read, facts)


FACT_SETS: list[Facts] = [
    {"multipleOf": 0.25, "minimum": -2, "maximum": 20},
    {"multipleOf": 1.5, "exclusiveMinimum": -3, "exclusiveMaximum": 27},
    {"multipleOf": 6.75, "minimum": -12.5},
    {"multipleOf": 0.05},
    {"multipleOf": 2.125, "maximum": 17.1},
    {NOT_INTEGER: True},
    {NOT_INTEGER: True, "minimum": 1, "maximum": 12.5},
    {NOT_INTEGER: True, "multipleOf": 0.25},
    {NOT_MULTIPLE_OF: 3},
    {NOT_MULTIPLE_OF: 0.5},
    {NOT_MULTIPLE_OF: 2.5, "multipleOf": 0.25},
    {NOT_MULTIPLE_OF: 1, "exclusiveMinimum": 1},
    {NOT_MULTIPLE_OF: 6, "minimum": 2, "maximum": 15.5},
    {NOT_ENUM: [5, 1.5, "5", 0]},
    {NOT_ENUM: [-2.0, 12], "minimum": -3},
    {NOT_ENUM: [0.25, 3], NOT_INTEGER: True},
    {NOT_ENUM: [12.5, 27], "multipleOf": 0.5, NOT_MULTIPLE_OF: 3},
]


@pytest.mark.parametrize("facts", FACT_SETS, ids=str)
def test_exactly_the_small_decimals_that_satisfy_all_facts_are_accepted(facts: Facts) -> None:
    walker = walk(facts)
    for text in SMALL_DECIMALS:
        as_python_writes = text == json.dumps(json.loads(text))
        expected = holds(text, facts)
        if not expected or (as_python_writes and not is_float_of_multiple(text, facts)):
            assert walker.accepts(text) == expected, text


def is_float_of_multiple(text: str, facts: Facts) -> bool:
    """Whether ``text`` is like ``5.0`` where multiples are integers, written without a point."""
    return "multipleOf" in facts and "." in text and exactly(facts["multipleOf"]).denominator == 1


@pytest.mark.parametrize("facts", FACT_SETS, ids=str)
def test_random_numbers_satisfy_all_facts_however_they_are_read(facts: Facts) -> None:
    rng = random.Random(1)
    walker = walk(facts)
    for _ in range(many(150, 4)):
        text = walker.sample(rng, steps=rng.choice([0, 6, 25, 60])).decode()
        assert holds(text, facts), text
        assert admit_number(nodes(facts), json.loads(text)), text


@given(
    st.integers(0, 2),
    st.integers(1, 60),
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.booleans(),
)
@settings(max_examples=many(80, 4))
def test_remainders_are_followed_over_every_range(
    places: int, step: int, first: int, size: int, divisible: bool
) -> None:
    pool = ExpressionPool()
    remainders = Remainders(pool, Grid(places, step, first, first + size), divisible=divisible)
    walker = Walker(pool, remainders.between(first, first + size))
    near = {*range(max(first - 12, 0), first + 12), *range(first + size - 12, first + size + 12)}
    for count in near | set(range(0, 6100, 41)):
        expected = first <= count <= first + size and (count % step == 0) == divisible
        whole, fraction = divmod(count, 10**places)
        text = f"{whole}.{fraction:0{places}d}" if places else str(whole)
        assert walker.accepts(text) == (expected and count >= 0)
        if places and "0" in text[-places:]:
            shorter = text.rstrip("0").rstrip(".")
            assert walker.accepts(shorter) == expected


@given(
    st.sampled_from(FACTORS),
    st.sampled_from(FACTORS),
    st.floats(-1e6, 1e6).map(lambda value: round(value, 3) + 0.0),
    st.floats(0, 1e6),
    st.integers(-400, 400),
    st.integers(0, 1 << 30),
)
@settings(max_examples=many(150, 4))
def test_multiples_of_decimals_are_exact_both_ways(
    first: float, second: float, low: float, size: float, count: int, seed: int
) -> None:
    facts = [{"multipleOf": first, "minimum": low}, {"multipleOf": second, "maximum": low + size}]
    try:
        walker = walk(*facts)
    except UnsupportedSchema:
        assume(False)
    rng = random.Random(seed)
    if not walker.is_empty:
        for _ in range(10):
            text = walker.sample(rng, steps=20).decode()
            assert all(holds(text, part) for part in facts), text
    step = exactly(first) * exactly(second)
    step /= math.gcd((exactly(first) / step).numerator, (exactly(second) / step).numerator)
    near = exactly(low) // step * step
    for value in (near + count * step, near + step, count * step, near + exactly(0.01)):
        written = json.loads(str(float(value))) if value.denominator > 1 else int(value)
        text = json.dumps(written)
        if "e" not in text and exactly(written) == value:
            assert walker.accepts(text) == all(satisfies(value, part) for part in facts), text


@given(
    st.sampled_from([0.01, 0.25, 1.5, 6.75, 3, 10, 7, 0.3]),
    st.booleans(),
    st.lists(st.decimals(-50, 50, places=2).map(float), max_size=3),
    st.decimals(-60, 60, places=1).map(float),
    st.decimals(-60, 60, places=3),
)
@settings(max_examples=many(300, 16))
def test_negated_facts_are_exact_on_decimals_of_a_few_places(
    factor: float, fractions_only: bool, listed: list[float], low: float, value: Decimal
) -> None:
    facts: Facts = {NOT_MULTIPLE_OF: factor, NOT_ENUM: listed, "minimum": low}
    if fractions_only:
        facts[NOT_INTEGER] = True
    walker = walk(facts)
    for written in (float(value) + 0.0, int(value), float(int(value)), *listed, low):
        text = json.dumps(written)
        if "e" not in text and text != "-0.0":
            assert walker.accepts(text) == satisfies(exactly(written), facts), text


@given(
    st.integers(2, 130),
    st.integers(-(10**6), 10**6),
    st.integers(0, 10**9),
    st.lists(st.integers(-20, 20), max_size=4),
    st.data(),
)
@settings(max_examples=many(120, 4))
def test_integers_that_are_no_multiples_are_exact(
    factor: int, low: int, size: int, listed: list[int], data: st.DataObject
) -> None:
    facts: Facts = {
        NOT_MULTIPLE_OF: factor,
        NOT_ENUM: listed,
        "minimum": low,
        "maximum": low + size,
    }
    walker = walk(facts, integers_only=True)
    drawn = data.draw(st.lists(st.integers(low - 5, low + size + 5), max_size=8))
    for value in (*drawn, *listed, low - 1, low, low + size, low + size + 1, factor, 0):
        assert walker.accepts(str(value)) == satisfies(Fraction(value), facts)
    assert not walker.accepts(f"{low}.0")


def test_numbers_that_round_to_what_is_excluded_are_excluded() -> None:
    for facts in ({NOT_INTEGER: True}, {NOT_ENUM: [1]}, {NOT_MULTIPLE_OF: 1}):
        walker = walk(facts)
        for text in (
            "1.0000000000000000",
            "1.00000000000000001",
            "0.99999999999999999",
            "1",
            "1e0",
        ):
            assert not walker.accepts(text), text
    assert not walk({NOT_ENUM: [0.1]}).accepts("0.100000000000000006")
    assert not walk({NOT_INTEGER: True}).accepts("1234567890123456.7")
    assert walk({NOT_INTEGER: True}).accepts("0.30000000000000004")


def test_a_listed_number_is_excluded_in_every_spelling() -> None:
    for listed in (5, 5.0):
        walker = walk({NOT_ENUM: [listed, "x", True, None]})
        for text in ("5", "5.0", "5.00", "5e0", "0.5e1", "50e-1"):
            assert not walker.accepts(text), text
        for text in ("-5", "50", "5.1", "4.9", "0", "1", "0.5"):
            assert walker.accepts(text), text
    assert walk({NOT_ENUM: [9007199254740992]}).accepts("9007199254740991.0")


def test_integers_that_are_not_integers_do_not_exist() -> None:
    assert walk({NOT_INTEGER: True}, integers_only=True).is_empty
    assert walk({NOT_INTEGER: True, "multipleOf": 3}).is_empty
    assert walk({NOT_MULTIPLE_OF: 0.5}, integers_only=True).is_empty
    assert walk({NOT_MULTIPLE_OF: 3, "multipleOf": 6}).is_empty


@pytest.mark.parametrize("factor", [0.01, 0.0001, 1e-8, 1e-15])
@given(value=st.decimals(-(10**6), 10**6, places=4), extra=st.integers(1, 9))
@settings(max_examples=40)
def test_a_power_of_ten_limits_the_places(factor: float, value: Decimal, extra: int) -> None:
    places = round(-math.log10(factor))
    walker = walk({"multipleOf": factor})
    written = round(float(value), min(places, 4)) + 0.0
    if "e" not in repr(written):
        assert walker.accepts(json.dumps(written))
    assert walker.accepts("12.5" + "0" * (places - 1)) == (places > 0)
    assert not walker.accepts("12." + "0" * places + str(extra))


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"multipleOf": 0.01}, ["1.25", "3", "3.5", "-0.05", "12.30", "0.07", "3.0"], ["0.001"]),
        ({"multipleOf": 1e-8}, ["12391239123", "0.00000001", "20999999.9769"], ["0.000000001"]),
        ({"type": "integer", "multipleOf": 1e-8}, ["12391239123"], ["1.5"]),
        ({"type": "integer", "multipleOf": 2.5}, ["5", "-10", "0"], ["2", "7", "2.5"]),
        ({"multipleOf": 5e-324, "minimum": 0}, ["0.1", "7"], ["-1"]),
        ({"allOf": [{"multipleOf": 0.4}, {"multipleOf": 1.5}]}, ["6", "12", "-6"], ["3", "1.2"]),
        ({"multipleOf": 10**30}, ["0", "1" + "0" * 30], ["1" + "0" * 29]),
    ],
)
def test_schemas_with_decimal_factors(
    schema: dict[str, Any], inside: list[str], outside: list[str]
) -> None:
    walker = Walker.of(JsonSchema({"type": "number", **schema}))
    assert [text for text in inside if not walker.accepts(text)] == []
    assert [text for text in outside if walker.accepts(text)] == []


HOSTILE = [1e308, 5e-324, 1e-300, 10**5000, 10**300, 3**200, 2.0**900, 0.1 + 0.2, 123_457, 1e15]


@pytest.mark.parametrize("keyword", ["multipleOf", NOT_MULTIPLE_OF, "minimum", "maximum"])
@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_huge_and_tiny_numbers_are_built_small_or_refused(keyword: Any, value: Any) -> None:
    others: list[Facts] = [{}, {"exclusiveMinimum": 0}, {"minimum": 1e300}, {"maximum": -5e-324}]
    others += [{"multipleOf": 0.07}, {NOT_ENUM: [value, 1e300, 5e-324]}, {NOT_INTEGER: True}]
    for other, integers_only in itertools.product(others, (False, True)):
        pool = ExpressionPool(max_nodes=60_000)
        facts = nodes({keyword: value}, other)
        try:
            walker = Walker(pool, build_numbers(pool, facts, LIMITS, integers_only=integers_only))
        except UnsupportedSchema:
            continue
        if not walker.is_empty:
            shortest = walker.derivatives.shortest(walker.root)
            assert admit_number(facts, json.loads(shortest))


def test_multiples_out_of_reach_are_refused_and_not_called_unsatisfiable() -> None:
    for facts in (
        {"multipleOf": 1e-300, "minimum": 1e-299, "maximum": 1e-298},
        {"multipleOf": 1.5, "minimum": 1e20, "maximum": 1e21},
        {"multipleOf": 527.0, "minimum": 1e300},
        {"minimum": 1e-300, "maximum": 1e-300},
    ):
        with pytest.raises(UnsupportedSchema):
            walk(facts)
    assert walk({"multipleOf": 1.5, "minimum": 2, "maximum": 2.5}).is_empty


def test_usual_numbers_cost_few_expressions_and_share_them() -> None:
    pool = ExpressionPool()
    price, age = {"multipleOf": 0.01, "minimum": 0}, {"minimum": 0, "maximum": 150}
    sizes = []
    for facts in (price, age, {"multipleOf": 0.25}, {"multipleOf": 5}, {NOT_ENUM: [0]}):
        before = len(pool)
        build_numbers(pool, nodes(facts), LIMITS, integers_only=False)
        sizes.append(len(pool) - before)
        build_numbers(pool, nodes(facts), LIMITS, integers_only=False)
        assert len(pool) == before + sizes[-1]
    assert max(sizes) < 400
    assert sizes[0] < 40


def test_identifiers_of_64_bits_are_numbers_and_integers() -> None:
    for kind in ("integer", "number"):
        assert Walker.of(JsonSchema({"type": kind})).accepts("12345678901234567890")
        assert Walker.of(JsonSchema({"type": kind, "minimum": 0})).accepts("18446744073709551615")


def test_the_number_of_digits_without_a_bound_is_configurable() -> None:
    limits = Limits(integer_digits=4, fraction_digits=2)
    for schema in (
        {"type": "number"},
        {"type": "number", "minimum": 0},
        {"type": "number", "multipleOf": 0.01},
        {"type": "number", "multipleOf": 0.125},
        {"type": "number", "not": {"const": 7}},
        {},
    ):
        try:
            walker = Walker.of(JsonSchema(schema), limits)
        except UnsupportedSchema:
            continue
        assert walker.accepts("1234.50")
        assert not walker.accepts("12345.50")
        assert not walker.accepts("1.125")


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([None, 0, 1, -1, 1e-4, 5e16])
)
@settings(max_examples=many(300, 16))
def test_bounded_numbers_with_exponents_are_in_range(value: float, bound: float | None) -> None:
    text = json.dumps(value)
    for facts in (
        {"minimum": bound},
        {"maximum": bound},
        {"minimum": -3, "exclusiveMaximum": bound},
    ):
        facts = {keyword: limit for keyword, limit in facts.items() if limit is not None}
        walker = walk(facts)
        if walker.accepts(text):
            assert jsonschema.Draft202012Validator(facts).is_valid(value)
    if 0 < value < 1e-4 and value >= 1e-307:
        assert walk({"minimum": 0}).accepts(text)
    if 1e16 <= value < 1e308:
        assert walk({"exclusiveMinimum": 0.5}).accepts(text)


@pytest.mark.parametrize("draft", ["draft2020-12", "draft7"])
@pytest.mark.parametrize("keyword", NUMBER_KEYWORDS)
def test_the_official_cases_are_right_or_refused(draft: str, keyword: str) -> None:
    for group in datasets.official_suite()[draft][keyword]:
        try:
            walker = Walker.of(JsonSchema(group["schema"]))
        except ConstraintError:
            continue
        for test in group["tests"]:
            accepted = walker.accepts_value(test["data"])
            assert not (accepted and not test["valid"]), test["description"]
            if keyword not in ("optional/float-overflow", "optional/bignum"):
                assert accepted == test["valid"], test["description"]
