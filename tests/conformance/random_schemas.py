"""Small random schemas over all keywords, and random values near their instances."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

NAMES = ["a", "b", "ab", "é"]
STRINGS = ["", "a", "b", "ab", "abc", "aab", "é", "1", "x\ny", "😀"]
LEAVES: list[Any] = [None, True, False, 0, 1, 2, -1, 3, 10, 2.5, -0.5, 1.0, *STRINGS]
PATTERNS = ["a", "^a", "b$", "^[ab]*$", "^a?b+$", "^(?!ab)", "^.{2}$", "é|1", "^$"]
TYPES = ["string", "integer", "number", "object", "array", "null", "boolean"]

FORMATS = ["email", "date", "ipv4", "uuid"]
DISPUTED_PATTERNS = [r"^\w$", r"\W", r"\d$", r"^\S*$", "(?i)i", "a$", "^.$"]
DISPUTED_STRINGS = ["a@b", "a@b.cc", "2020-01-02", "1.2.3.4", "٣", "İ", "\u2028", "a\n", "é", "I"]
"""Strings on which validators, or dialects of regular expressions, disagree, and some others."""

Keywords = dict[str, Any]
Maker = Callable[[random.Random, int], Keywords]


def random_schema(rng: random.Random, depth: int = 3) -> Any:
    """A schema of draft 2020-12; one in four is of draft 7, and has ``$schema``."""
    if rng.random() < 0.25:
        schema = _subschema(rng, depth, _DRAFT_7)
        return {"$schema": "http://json-schema.org/draft-07/schema#", **_object(schema)}
    return _with_definitions(_object(_subschema(rng, depth, _DRAFT_2020)), rng)


def disputed_schema(rng: random.Random, depth: int = 3) -> Any:
    """A schema that validators read differently: keywords of other drafts than its own, formats,
    and patterns whose meaning depends on the dialect."""
    draft = rng.choice(["draft-04/schema#", "draft-06/schema#", "draft-07/schema#", None, None])
    schema = _with_definitions(_object(_subschema(rng, depth, _DISPUTED)), rng)
    return {"$schema": f"http://json-schema.org/{draft}", **schema} if draft else schema


CLOSE_NAMES = ["", "a", "ab", "abc", "b", "ba"]
"""Names, most of which are prefixes of others."""


def object_schema(rng: random.Random, depth: int = 1) -> Keywords:
    """A schema that counts members: declared ones, and others with similar names."""
    schema: Keywords = {"type": "object"} if rng.random() < 0.8 else {}
    declared = rng.sample(CLOSE_NAMES, rng.choice([0, 1, 1, 2, 3]))
    if declared:
        schema["properties"] = {name: _member(rng, depth) for name in declared}
    if rng.random() < 0.3:
        schema["required"] = rng.sample(CLOSE_NAMES, rng.choice([1, 1, 2]))
    if rng.random() < 0.7:
        schema["minProperties"] = rng.choice([1, 2, 2, 3])
    if rng.random() < 0.3:
        schema["maxProperties"] = rng.choice([1, 2, 3])
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice([True, _member(rng, depth), False])
    if rng.random() < 0.25:
        schema["patternProperties"] = {rng.choice(PATTERNS): _member(rng, depth)}
    if rng.random() < 0.2:
        names = rng.choice([{"maxLength": 1}, {"pattern": "a"}, {"enum": ["a", "ab", "b", "ba"]}])
        schema["propertyNames"] = names
    if depth and rng.random() < 0.4:
        first, second = object_schema(rng, depth - 1), object_schema(rng, depth - 1)
        around: list[Keywords] = [
            {"if": first, "then": second, "else": rng.choice([True, False, schema])},
            {"anyOf": [first, second]},
            {"oneOf": [first, second]},
            {"not": first},
            {"allOf": [first, second]},
        ]
        schema = {**schema, **rng.choice(around)} if rng.random() < 0.5 else rng.choice(around)
    return schema


def _member(rng: random.Random, depth: int) -> Any:
    if depth and rng.random() < 0.2:
        return object_schema(rng, depth - 1)
    return rng.choice([{}, True, {"type": "integer"}, {"type": "object"}, {"enum": [0, "a"]}])


def object_value(rng: random.Random, depth: int = 1) -> Any:
    """A small object with names from ``CLOSE_NAMES``."""
    names = rng.sample(CLOSE_NAMES, rng.choice([0, 1, 2, 2, 3, 4]))
    return {
        name: object_value(rng, depth - 1)
        if depth and rng.random() < 0.3
        else rng.choice([0, 1, "a", None, True])
        for name in names
    }


def _with_definitions(schema: Keywords, rng: random.Random) -> Keywords:
    if "$ref" in str(schema):
        schema["$defs"] = {
            "t": _subschema(rng, 1, _FLAT),
            "r": {"type": ["array", "null"], "items": {"$ref": "#/$defs/r"}, "maxItems": 2},
        }
    return schema


def _object(schema: Any) -> Keywords:
    return schema if isinstance(schema, dict) else {"allOf": [schema]}


def _subschema(rng: random.Random, depth: int, makers: list[Maker]) -> Any:
    if rng.random() < 0.06:
        return rng.random() < 0.6
    usable = makers if depth > 0 else _FLAT if makers is not _DISPUTED else _DISPUTED_FLAT
    schema: Keywords = {}
    for make in rng.sample(usable, min(len(usable), rng.choice([1, 1, 2, 2, 3]))):
        schema.update(make(rng, depth - 1))
    if depth <= 0:
        return schema
    return {key: _grown(value, rng, depth - 1, makers) for key, value in schema.items()}


class _Hole:
    """Placeholder of a subschema, until its draft is known."""


_HOLE = _Hole()


def _grown(value: Any, rng: random.Random, depth: int, makers: list[Maker]) -> Any:
    if isinstance(value, _Hole):
        return _subschema(rng, depth, makers)
    if isinstance(value, dict):
        return {key: _grown(part, rng, depth, makers) for key, part in value.items()}
    if isinstance(value, list):
        return [_grown(part, rng, depth, makers) for part in value]
    return value


def random_value(rng: random.Random, depth: int = 2) -> Any:
    """A small random value."""
    kind = rng.random()
    if depth > 0 and kind < 0.45:
        names = rng.sample(NAMES, rng.choice([0, 1, 2, 2, 3, 4]))
        return {name: random_value(rng, depth - 1) for name in names}
    if depth > 0 and kind < 0.6:
        return [random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return rng.choice(LEAVES)


def mutated(value: Any, rng: random.Random) -> Any:
    """A value that differs from ``value`` in one place."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(list(value))
        change = rng.random()
        if change < 0.25:
            return {key: part for key, part in value.items() if key != name}
        if change < 0.4:
            return dict(rng.sample(list(value.items()), len(value)))
        if change < 0.6:
            return {**value, rng.choice(NAMES): random_value(rng, 1)}
        return {**value, name: mutated(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        change = rng.random()
        if change < 0.3:
            return value[:place] + value[place + 1 :]
        if change < 0.6:
            return [*value, rng.choice([value[place], random_value(rng, 1)])]
        return [*value[:place], mutated(value[place], rng), *value[place + 1 :]]
    if isinstance(value, str) and rng.random() < 0.6:
        place = rng.randint(0, len(value))
        return value[:place] + rng.choice(["a", "b", "é", ""]) + value[place + 1 :]
    if type(value) in (int, float) and rng.random() < 0.6:
        return value + rng.choice([1, -1, 0.5])
    return random_value(rng)


def _count(rng: random.Random) -> int:
    return rng.choice([0, 1, 1, 2, 2, 3])


def _either(low: str, high: str) -> Maker:
    """Makes a lower bound, an upper bound, or both."""

    def make(rng: random.Random, depth: int) -> Keywords:
        kept = rng.choice([[low], [high], [low, high]])
        return {name: _count(rng) + (name == high) for name in kept}

    return make


def _numeric(rng: random.Random, depth: int) -> Keywords:
    bounds = {
        "minimum": rng.choice([-1, 0, 1, 0.5]),
        "exclusiveMinimum": rng.choice([-1, 0, 0.5]),
        "maximum": rng.choice([0, 2, 3, 2.5]),
        "exclusiveMaximum": rng.choice([1, 3, 2.5]),
        "multipleOf": rng.choice([1, 2, 3, 0.5]),
    }
    kept = rng.sample(list(bounds), rng.choice([1, 1, 2]))
    return {"type": rng.choice(["integer", "number"]), **{name: bounds[name] for name in kept}}


def _type(rng: random.Random, depth: int) -> Keywords:
    kinds = rng.choice(TYPES) if rng.random() < 0.7 else rng.sample(TYPES, 2)
    return {"type": kinds}


def _properties(rng: random.Random, depth: int) -> Keywords:
    names = rng.sample(NAMES, rng.randint(1, 3))
    made: Keywords = {"properties": dict.fromkeys(names, _HOLE)}
    if rng.random() < 0.6:
        made["required"] = rng.sample(names if rng.random() < 0.7 else NAMES, 1)
    if rng.random() < 0.3:
        made["additionalProperties"] = rng.choice([False, _HOLE])
    if rng.random() < 0.6:
        made["type"] = "object"
    return made


def _contains(rng: random.Random, depth: int) -> Keywords:
    made: Keywords = {"contains": _HOLE}
    if rng.random() < 0.4:
        made["minContains"] = rng.choice([0, 1, 2])
    if rng.random() < 0.4:
        made["maxContains"] = rng.choice([1, 2])
    return made


def _conditional(rng: random.Random, depth: int) -> Keywords:
    made: Keywords = {"if": _HOLE}
    if rng.random() < 0.7:
        made["then"] = _HOLE
    if rng.random() < 0.6:
        made["else"] = _HOLE
    return made


def _unique(rng: random.Random, depth: int) -> Keywords:
    values = rng.sample([1, 2, "a", "b", None, True], rng.randint(1, 4))
    return {"type": "array", "uniqueItems": True, "items": {"enum": values}}


def _dependencies(rng: random.Random, depth: int) -> Keywords:
    return {"dependencies": {rng.choice(NAMES): rng.choice([rng.sample(NAMES, 1), _HOLE])}}


def _one(keyword: str) -> Maker:
    return lambda rng, depth: {keyword: _HOLE}


def _several(keyword: str) -> Maker:
    return lambda rng, depth: {keyword: [_HOLE] * rng.randint(1, 3)}


_SIMPLE: list[Maker] = [
    _type,
    _numeric,
    _either("minLength", "maxLength"),
    lambda rng, depth: {"pattern": rng.choice(PATTERNS)},
    lambda rng, depth: {"enum": [random_value(rng, 1) for _ in range(rng.randint(1, 4))]},
    lambda rng, depth: {"const": random_value(rng, 1)},
    _either("minItems", "maxItems"),
    _either("minProperties", "maxProperties"),
    lambda rng, depth: {"required": rng.sample(NAMES, rng.randint(1, 2))},
    _unique,
]
_FLAT = _SIMPLE
_NESTED: list[Maker] = [
    *[_properties] * 5,
    lambda rng, depth: {"patternProperties": {rng.choice(PATTERNS): _HOLE}},
    lambda rng, depth: {"additionalProperties": _HOLE},
    lambda rng, depth: {"propertyNames": {"pattern": rng.choice(PATTERNS)}},
    _one("items"),
    _one("not"),
    _one("not"),
    _several("anyOf"),
    _several("oneOf"),
    _several("oneOf"),
    _several("allOf"),
    _conditional,
]
_DRAFT_7: list[Maker] = [
    *_SIMPLE,
    *_NESTED,
    _dependencies,
    lambda rng, depth: {"contains": _HOLE},
    lambda rng, depth: {"items": [_HOLE] * rng.randint(1, 2), "additionalItems": _HOLE},
]
_DRAFT_2020: list[Maker] = [
    *_SIMPLE,
    *_NESTED,
    _several("prefixItems"),
    _contains,
    lambda rng, depth: {"dependentRequired": {rng.choice(NAMES): rng.sample(NAMES, 1)}},
    lambda rng, depth: {"dependentSchemas": {rng.choice(NAMES): _HOLE}},
    lambda rng, depth: {"$ref": rng.choice(["#/$defs/t", "#/$defs/r"])},
    lambda rng, depth: {"unevaluatedProperties": rng.choice([False, _HOLE])},
    lambda rng, depth: {"unevaluatedItems": rng.choice([False, _HOLE])},
]
_DISPUTED_FLAT: list[Maker] = [
    *_SIMPLE,
    *[lambda rng, depth: {"format": rng.choice(FORMATS)}] * 3,
    *[lambda rng, depth: {"pattern": rng.choice(DISPUTED_PATTERNS)}] * 3,
    *[lambda rng, depth: {"enum": rng.sample(DISPUTED_STRINGS, 3)}] * 3,
]
_DISPUTED = [*_DISPUTED_FLAT, *_DRAFT_2020, _dependencies]
