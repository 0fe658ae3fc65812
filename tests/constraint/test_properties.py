"""The language of a constraint equals the valid values of the ``jsonschema`` library.

``make fuzz`` compares more schemas.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.constraint import JsonSchema
from tests.conformance import agreement
from tests.conformance.random_schemas import object_schema, object_value, random_schema
from tests.constraint.walks import Walker
from tests.wide import many


@given(st.randoms(use_true_random=False))
@settings(max_examples=many(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_value_is_in_the_language_exactly_where_it_is_valid(rng: random.Random) -> None:
    found = agreement.check(random_schema(rng, depth=2), rng, Counter())
    assert found is None, str(found)


def test_counted_objects_have_the_members_that_are_valid_whatever_their_names() -> None:
    """Such schemas once rejected ``{"a": {}, "b": {}}`` (below); ``make fuzz`` tries more."""
    counts = Counter[str]()
    for seed in range(many(150)):
        rng = random.Random(seed)
        schema = object_schema(rng)
        found = agreement.check(schema, rng, counts, any_value=object_value)
        assert found is None, str(agreement.smallest(found))
    assert counts["valid: right"] > many(300)
    assert counts["invalid: right"] > many(300)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"x": {}}, "minProperties": 2}, {"a": 0, "b": 0}),
        (
            {
                "if": {
                    "type": "object",
                    "properties": {"ab": True},
                    "additionalProperties": True,
                },
                "then": {"minProperties": 2},
                "else": True,
            },
            {"a": {}, "b": {}},
        ),
    ],
)
def test_members_with_open_names_count_beside_declared_ones(schema: Any, value: Any) -> None:
    for close in (False, True):
        walker = Walker.of(JsonSchema(schema, close_objects=close))
        assert walker.accepts_in_some_order(value)
        assert not walker.accepts_in_some_order({"a": 0})
        assert not walker.accepts('{"a": 0, "a": 0}')


def test_few_random_schemas_are_refused() -> None:
    counts = Counter[str]()
    for seed in range(many(300)):
        rng = random.Random(seed)
        found = agreement.check(random_schema(rng, depth=2), rng, counts)
        assert found is None, str(agreement.smallest(found))
    refused = sum(count for name, count in counts.items() if name.startswith("refused"))
    assert refused < many(60), counts
    assert counts["valid: right"] > many(1000)
    assert counts["invalid: right"] > many(1000)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1, "a": 1}),
        ({"not": {"properties": {"a": {}, "b": {"type": "null"}}}}, {"b": None, "a": 1}),
        ({"not": {"const": {"a": 1, "b": 2}}}, {"b": 2, "a": 1}),
        ({"if": {"required": ["a", "b"]}, "then": False}, {"b": 0, "a": 0}),
    ],
)
def test_a_negation_excludes_every_order_of_the_members(
    schema: dict[str, object], value: object
) -> None:
    assert agreement.disagrees(schema, value) == ""
