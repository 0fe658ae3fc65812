"""Relaxed schemas accept what the originals do.

Adds unenforceable keywords to random schemas, also below negations; the oracle is the
``jsonschema`` library, which can enforce them.
"""

from __future__ import annotations

import random
from typing import Any

import jsonschema
from referencing import Registry, Resource

from app.constraint.limits import Limits
from app.constraint.program import compile_program
from app.constraint.relaxation import relaxed
from app.core.constraint import Relaxation
from app.core.errors import (
    UnsatisfiableSchema,
)
from app.core.specs import JsonSchema
from tests.conformance.random_schemas import mutated, random_value
from tests.conformance.verdicts import Verdict, judge, plainly_spelled
from tests.constraint.walks import Walker

ELSEWHERE = "http://elsewhere.example/schema"
"""URI of an external schema that the server does not know."""

_SPOILERS: list[dict[str, Any]] = [
    {"pattern": r"^(a|b)\1$"},
    {"not": {"type": "array", "unevaluatedItems": True}},
    {"patternProperties": {r"^(a|b)\1": {"type": "string"}}},
    {"not": {"not": {"pattern": r"^(a|b)\1$"}}},
    {"if": {"pattern": r"^(a|b)\1$"}, "then": {"maxLength": 2}, "else": {"type": "object"}},
    {"$ref": ELSEWHERE},
    {"maxContains": 1, "contains": {"unevaluatedItems": True}},
]


def spoiled(schema: Any, rng: random.Random, chance: float = 0.25) -> Any:
    """``schema`` with unenforceable keywords in some of its subschemas."""
    if isinstance(schema, list):
        return [spoiled(each, rng, chance) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: spoiled(value, rng, chance) for key, value in schema.items()}
    looks_like_schema = not found.keys().isdisjoint({"type", "properties", "allOf", "items", "not"})
    if looks_like_schema and rng.random() < chance:
        found |= rng.choice(_SPOILERS)
    return found


def widened(schema: Any) -> tuple[Any, tuple[Relaxation, ...]]:
    """The relaxed ``schema``, and the relaxations. Raises ``ConstraintError``."""
    wider, found = relaxed(
        JsonSchema(schema, relax=True), Limits(), lambda spec: compile_program(without_relax(spec))
    )
    assert isinstance(wider, JsonSchema)
    return wider.schema, found


def without_relax(spec: Any) -> JsonSchema:
    return JsonSchema(spec.schema, spec.close_objects)


def left_out(schema: Any, rng: random.Random, tries: int = 40) -> tuple[list[Any], int]:
    """Valid instances missing from the relaxed language, and the number of valid ones tried."""
    try:
        wider, found = widened(schema)
    except UnsatisfiableSchema:
        return [], 0
    if not found:
        return [], 0
    walker = Walker.of(JsonSchema(wider))
    if walker.pool.inexact:
        return [], 0
    elsewhere = Resource.from_contents(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": ["string", "object"]}
    )
    registry: Registry[Any] = Registry().with_resource(ELSEWHERE, elsewhere)
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    validator = kind(schema, registry=registry)
    lacking, valid = [], 0
    value = random_value(rng)
    for _ in range(tries):
        value = mutated(value, rng) if rng.random() < 0.7 else random_value(rng)
        value = plainly_spelled(value)
        if validator.is_valid(value):
            valid += 1
            if judge(wider, value, valid=True, walker=walker) is Verdict.WRONG:
                lacking.append(value)
    return lacking, valid
