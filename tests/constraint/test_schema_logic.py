"""Keywords that combine, negate and count, compared with jsonschema on a small set of values."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

import jsonschema
import pytest

from app.constraint.json.text import JsonText, json_pool
from app.constraint.limits import Limits
from app.constraint.program import compile_program
from app.constraint.schema.lowering.builder import SchemaBuilder
from app.core.errors import ConstraintTooComplex, UnsatisfiableSchema
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker
from tests.wide import many

SCALARS: list[Any] = [None, True, False, 0, 1, 2, -1, 1.5, "", "a", "b", "ab", "x1", "long text"]


@cache
def universe() -> tuple[Any, ...]:
    return (*SCALARS, *arrays(), *objects())


def arrays() -> Iterator[Any]:
    yield []
    for size in (1, 2, 3):
        yield from map(list, product([1, "a", None, True][: 5 - size], repeat=size))
    yield [1, 2, 3, 4, 5]
    yield [[1], ["a"]]


def objects() -> Iterator[Any]:
    values = [None, 1, "a"]
    yield {}
    for name in ("a", "b", "ab", "x1", "x2", "c"):
        yield from ({name: value} for value in values)
    for one, other in [("a", "b"), ("a", "c"), ("b", "c"), ("a", "x1"), ("x1", "x2"), ("ab", "c")]:
        yield from ({one: left, other: right} for left, right in product(values, repeat=2))
    yield from ({"a": 1, "b": left, "c": right} for left, right in product(values, repeat=2))
    yield {"a": {"a": 1}}
    yield {"a": {"b": 1}, "b": {}}


SCHEMAS: dict[str, Any] = {
    "not a type": {"not": {"type": ["string", "object"]}},
    "not an integer": {"not": {"type": "integer"}},
    "not a number": {"type": ["number", "null"], "not": {"type": "number"}},
    "not a constant": {"not": {"const": 1}},
    "not some values": {"not": {"enum": [1, "a", None, [], {"a": 1}, [1, "a"]]}},
    "not of a range": {"not": {"type": "number", "minimum": 0, "exclusiveMaximum": 2}},
    "not a length": {"not": {"minLength": 1, "maxLength": 2}},
    "not a pattern": {"not": {"pattern": "^a"}},
    "not a multiple": {"type": "integer", "not": {"multipleOf": 2}},
    "not required": {"type": "object", "not": {"required": ["a", "b"]}},
    "not properties": {"not": {"properties": {"a": {"type": "string"}, "b": {"const": 1}}}},
    "not pattern properties": {"not": {"patternProperties": {"^x": {"type": "null"}}}},
    "not additional": {"not": {"properties": {"a": {}}, "additionalProperties": False}},
    "not names": {"type": "object", "not": {"propertyNames": {"maxLength": 1}}},
    "two names that must be there": {
        "type": "object",
        "not": {"propertyNames": {"not": {"pattern": "1$"}}},
        "allOf": [{"not": {"patternProperties": {"^c$": False}}}],
    },
    "not counts": {
        "properties": {"a": {}, "b": {}, "c": {}},
        "additionalProperties": False,
        "not": {"minProperties": 1, "maxProperties": 2},
    },
    "not items": {"not": {"items": {"type": "string"}}},
    "not prefix": {"not": {"prefixItems": [{"const": 1}], "items": {"const": "a"}}},
    "not contains": {"not": {"contains": {"type": "null"}}},
    "not all": {"not": {"allOf": [{"type": "object"}, {"required": ["a"]}]}},
    "not any": {"not": {"anyOf": [{"type": "object"}, {"type": "array"}, {"minimum": 1}]}},
    "not one": {"not": {"oneOf": [{"type": "integer"}, {"minimum": 1}, {"const": "a"}]}},
    "not not": {"not": {"not": {"required": ["a"], "type": "object"}}},
    "not if": {"not": {"if": {"type": "string"}, "then": {"minLength": 2}, "else": False}},
    "not dependent": {"not": {"dependentRequired": {"a": ["b", "c"]}}},
    "not dependent schema": {"not": {"dependentSchemas": {"a": {"required": ["b"]}}}},
    "not a reference": {"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "object"}}},
    "one of types": {"oneOf": [{"type": "string"}, {"type": "null"}, {"type": "object"}]},
    "one of overlapping numbers": {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
    "one of required": {"type": "object", "oneOf": [{"required": [n]} for n in ("a", "b", "x1")]},
    "one of overlapping objects": {
        "oneOf": [
            {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}},
            {"properties": {"c": {"type": "null"}}, "required": ["c"]},
        ]
    },
    "one of tagged": {
        "required": ["a"],
        "oneOf": [
            {"properties": {"a": {"const": 1}, "b": {"type": "string"}}},
            {"properties": {"a": {"const": "a"}, "b": {"type": "null"}}},
        ],
    },
    "one of tagged, of any type": {
        "oneOf": [
            {"properties": {"a": {"const": tag}, "b": {"type": "string"}}, "required": ["a"]}
            for tag in (1, "a", "b")
        ]
    },
    "one of, and never": {"oneOf": [{"required": ["a"]}, {"allOf": [False]}, {"type": "array"}]},
    "one of, whatever the number": {
        "oneOf": [{"type": "number"}, {"minLength": 1}, {"minimum": 1}]
    },
    "one of patterns": {"oneOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]},
    "one of in one of": {
        "oneOf": [{"oneOf": [{"type": "object"}, {"required": ["a"]}]}, {"const": 1}]
    },
    "if then else": {
        "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
        "then": {"required": ["b"]},
        "else": {"type": ["object", "null"], "maxProperties": 1},
    },
    "if then": {"if": {"type": "string"}, "then": {"maxLength": 1}},
    "if else": {"if": {"type": "string"}, "else": {"type": "array"}},
    "dependent required": {
        "type": "object",
        "dependentRequired": {"a": ["b"], "c": ["a", "b"]},
        "properties": {"b": {"type": "string"}},
    },
    "dependent schemas": {"dependentSchemas": {"a": {"maxProperties": 1}, "b": False}},
    "dependencies": {"dependencies": {"a": ["c"], "x1": {"required": ["x2"]}}},
    "pattern properties": {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
    "patterns that overlap": {
        "type": "object",
        "patternProperties": {
            "^x": {"type": ["string", "null"]},
            "1$": {"type": ["null", "integer"]},
        },
        "additionalProperties": {"const": 1},
    },
    "patterns beside names": {
        "properties": {"x1": {"type": ["string", "null"]}, "a": {}},
        "patternProperties": {"x": {"type": ["string", "integer"]}},
        "additionalProperties": False,
    },
    "names": {"propertyNames": {"pattern": "^[ab]+$"}, "properties": {"c": {}, "a": {}}},
    "names of a list": {"propertyNames": {"enum": ["a", "x1", "c"]}, "required": ["a"]},
    "names that are not": {"propertyNames": {"not": {"enum": ["a", "c"]}}},
    "no names": {"propertyNames": False},
    "at least one": {"minProperties": 1},
    "at most one": {"maxProperties": 1},
    "none": {"maxProperties": 0},
    "counts with names": {
        "properties": {n: {"type": ["integer", "null"]} for n in ("a", "b", "c")},
        "required": ["b"],
        "minProperties": 2,
        "maxProperties": 2,
        "additionalProperties": False,
    },
    "at least two of three": {
        "properties": {"a": {}, "b": {}, "c": {}},
        "minProperties": 2,
        "additionalProperties": False,
    },
    "contains": {"contains": {"type": "string"}},
    "contains two": {"contains": {"type": "string"}, "minContains": 2},
    "contains at most one": {"contains": {"type": "string"}, "maxContains": 1},
    "contains none or more": {"contains": {"type": "string"}, "minContains": 0},
    "contains within counts": {
        "contains": {"const": 1},
        "minItems": 2,
        "maxItems": 3,
        "minContains": 1,
        "maxContains": 2,
    },
    "contains beside a prefix": {"prefixItems": [{"const": 1}], "contains": {"const": "a"}},
    "contains two things": {"allOf": [{"contains": {"const": 1}}, {"contains": {"const": "a"}}]},
    "unique from a list": {"items": {"enum": [1, "a", None]}, "uniqueItems": True},
    "unique booleans": {"items": {"type": ["boolean", "null"]}, "uniqueItems": True, "minItems": 2},
    "unique and short": {"uniqueItems": True, "maxItems": 1},
    "unevaluated": {
        "properties": {"a": {}},
        "anyOf": [
            {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            {"required": ["a"]},
        ],
        "unevaluatedProperties": False,
    },
    "unevaluated through references": {
        "$ref": "#/$defs/base",
        "$defs": {"base": {"properties": {"a": {"type": "integer"}}}},
        "patternProperties": {"^x": {}},
        "unevaluatedProperties": {"type": "null"},
    },
    "unevaluated with if": {
        "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
        "then": {"properties": {"b": {}}},
        "else": {"properties": {"c": {}}},
        "unevaluatedProperties": False,
    },
    "unevaluated items": {
        "prefixItems": [{"const": 1}],
        "anyOf": [{"prefixItems": [True, {"const": "a"}]}, True],
        "unevaluatedItems": {"type": "null"},
    },
    "unevaluated items that are contained": {
        "contains": {"const": "a"},
        "unevaluatedItems": {"const": 1},
    },
    "all of with siblings": {
        "properties": {"a": {"type": ["string", "integer"]}},
        "allOf": [{"properties": {"a": {"minimum": 1}}}, {"required": ["a"]}],
        "anyOf": [{"required": ["b"]}, {"maxProperties": 1}],
    },
    "recursive negation": {
        "$ref": "#/$defs/t",
        "$defs": {"t": {"not": {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["a"]}}},
    },
    "anchors": {
        "$defs": {"x": {"$anchor": "here", "type": "string"}},
        "anyOf": [{"$ref": "#here"}, {"type": "null"}],
    },
    "identifiers": {
        "$id": "https://example.org/root.json",
        "$defs": {
            "x": {"$id": "other.json", "$defs": {"y": {"type": "array"}}, "$ref": "#/$defs/y"}
        },
        "anyOf": [{"$ref": "other.json"}, {"$ref": "https://example.org/other.json#/$defs/y"}],
    },
    "draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "minimum": 0,
        "exclusiveMinimum": True,
        "properties": {"a": {"$ref": "#/definitions/n", "type": "string"}},
        "definitions": {"n": {"type": "integer"}},
    },
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"const": 1}],
        "additionalItems": {"type": "string"},
        "dependencies": {"a": ["b"]},
    },
    "draft 7 where a reference stands alone": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"s": {"type": "string"}},
        "allOf": [{"anyOf": [{"type": "null"}, {"$ref": "#/definitions/s", "$recursiveRef": "#"}]}],
        "anyOf": [{"type": "string"}, {"$ref": "#/definitions/s", "$recursiveRef": "#"}],
    },
    "a recursive reference in a schema with an address": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$id": "https://example.org/tree",
        "type": ["object", "null"],
        "properties": {"a": {"$recursiveRef": "#"}},
    },
    "a tag that decides": {
        "properties": {"a": {"enum": [1, "a", None]}},
        "required": ["a"],
        "allOf": [
            {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
            {"if": {"properties": {"a": {"enum": ["a"]}}}, "then": {"properties": {"c": False}}},
            {"if": {"properties": {"a": {"const": None}}}, "then": {"maxProperties": 1}},
        ],
    },
    "a tag that may be missing": {
        "type": "object",
        "properties": {"a": {"enum": [1, "a"]}},
        "allOf": [
            {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
            {"if": {"properties": {"a": {"const": "a"}}}, "else": {"properties": {"c": False}}},
        ],
    },
    "not a tag and more": {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"enum": [1, None]}},
        "required": ["a"],
        "not": {
            "anyOf": [
                {"properties": {"a": {"const": "a"}, "b": {"const": 1}}},
                {"properties": {"a": {"const": 1}, "b": {"const": None}}, "required": ["c"]},
            ]
        },
    },
    "a tag that values without parts lack": {
        "properties": {"a": {"const": 1}},
        "not": {"properties": {"a": {"const": "a"}}, "required": ["a"]},
    },
    "booleans": {"properties": {"a": False, "b": True}},
    "everything": True,
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_value_is_accepted_exactly_if_it_is_valid(name: str) -> None:
    schema = SCHEMAS[name]
    walker = Walker.of(JsonSchema(schema))
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    oracle = kind(with_dependencies(schema, kind))
    for value in universe():
        assert walker.accepts_in_some_order(value) == oracle.is_valid(value), json.dumps(value)


def with_dependencies(schema: Any, kind: Any) -> Any:
    """Rewrite ``dependencies``: we enforce it in every dialect, the library in older ones only."""
    if kind is not jsonschema.Draft202012Validator or not isinstance(schema, dict):
        return schema
    needed = schema.get("dependencies", {})
    return {
        **schema,
        "dependentRequired": {
            **schema.get("dependentRequired", {}),
            **{name: names for name, names in needed.items() if isinstance(names, list)},
        },
        "dependentSchemas": {
            **schema.get("dependentSchemas", {}),
            **{name: other for name, other in needed.items() if not isinstance(other, list)},
        },
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {}},
        {"not": {"not": False}},
        {"oneOf": [{"type": "string"}, {"type": "string"}]},
        {"type": "string", "oneOf": [True, {"minLength": 0}]},
        {"required": ["a"], "type": "object", "properties": {"a": {"not": True}}},
        {"type": "object", "minProperties": 2, "maxProperties": 1},
        {"type": "array", "contains": False},
        {"enum": [1, 2], "not": {"maximum": 2}},
        {"type": "boolean", "uniqueItems": True, "not": {"enum": [True, False]}},
        {"items": {"type": "null"}, "uniqueItems": True, "minItems": 2, "type": "array"},
        {
            "allOf": [{"$ref": "#/$defs/a"}, {"not": {"$ref": "#/$defs/a"}}],
            "$defs": {"a": {"minLength": 3}},
        },
    ],
)
def test_unsatisfiable_schemas_are_detected(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_program(JsonSchema(schema))


def test_a_text_that_some_validator_takes_for_a_format_satisfies_both_of_one_of() -> None:
    """``a@b`` is an e-mail address to some validators and not to others."""
    schema = {"oneOf": [{"const": "a@b"}, {"type": "string", "format": "email"}]}
    walker = Walker.of(JsonSchema(schema))
    assert not walker.accepts_value("a@b")
    assert walker.accepts_value("someone@example.com")


def test_only_properties_of_the_schema_itself_close_an_object() -> None:
    schema = {"type": "object", "not": {"required": ["a"]}, "dependentRequired": {"b": ["c"]}}
    walker = Walker.of(JsonSchema(schema, close_objects=True))
    assert walker.accepts_value({"x": 1})
    assert not walker.accepts_value({"a": 1})
    assert not walker.accepts_value({"b": 1})


D7 = "http://json-schema.org/draft-07/schema#"
SOME_READERS = [
    # a value, and a schema that it satisfies to some validators only
    ("é", {"oneOf": [{"enum": ["é"]}, {"type": "string", "pattern": "^\\w$"}]}),
    (
        ["a@b", "x@y.zz"],
        {"enum": [["a@b", "x@y.zz"]], "contains": {"format": "email"}, "maxContains": 1},
    ),
    (" eb8aa08-aa98-11ea-b4aa-73b441d16380", {"type": "string", "not": {"format": "uuid"}}),
    ("İ", {"type": "string", "not": {"pattern": "(?i)i"}}),
    ([], {"$schema": D7, "contains": True, "minContains": 0}),
    (["a"], {"$schema": D7, "prefixItems": [True], "items": {"type": "null"}}),
    (
        {"a": 1},
        {
            "$defs": {"x": {"properties": {"a": True}}},
            "allOf": [
                {"$ref": "#/$defs/x"},
                {"not": {"not": {"$ref": "#/$defs/x"}}, "unevaluatedProperties": False},
            ],
        },
    ),
]


@pytest.mark.parametrize(("value", "schema"), SOME_READERS)
def test_values_that_any_validator_rejects_are_rejected(value: Any, schema: dict[str, Any]) -> None:
    with contextlib.suppress(UnsatisfiableSchema):
        assert not Walker.of(JsonSchema(schema)).accepts_value(value)


def test_a_condition_for_each_of_many_tags_is_no_product_of_them() -> None:
    tags = [f"k{number}" for number in range(24)]
    schema = {
        "type": "object",
        "properties": {"t": {"enum": tags}},
        "required": ["t"],
        "allOf": [
            {"if": {"properties": {"t": {"const": tag}}}, "then": {"required": [f"of {tag}"]}}
            for tag in tags
        ],
    }
    walker = Walker.of(JsonSchema(schema))
    assert walker.accepts_value({"t": "k7", "of k7": 0})
    assert not walker.accepts_value({"t": "k7", "of k8": 0})
    assert not walker.accepts_value({"t": "other", "of k7": 0})


@pytest.mark.parametrize("order", ["behind each flag", "behind all flags"])
@pytest.mark.parametrize(
    ("asked", "required"),
    [
        ("its own", True),
        ("its own", False),
        ("the next", False),
        ("the same", True),
        ("the same", False),
    ],
)
def test_conditions_of_twenty_flags_are_no_product_of_them(
    order: str, asked: str, required: bool
) -> None:
    flags, reasons = [f"has{n}" for n in range(20)], [f"why{n}" for n in range(20)]
    pairs = zip(flags, reasons, strict=True)
    names = [*flags, *reasons]
    if order == "behind each flag":
        names = [name for pair in pairs for name in pair]
    then = {"its own": reasons, "the next": [*flags[1:], flags[0]], "the same": ["why9"] * 20}
    schema = {
        "type": "object",
        "properties": {name: {"type": "boolean" if name in flags else "string"} for name in names},
        "allOf": [
            {"if": {"properties": {flag: {"const": True}}}, "then": {"required": [other]}}
            for flag, other in zip(flags, then[asked], strict=True)
        ],
        **({"required": flags} if required else {}),
    }
    validator = jsonschema.Draft202012Validator(schema)
    walker = Walker.of(JsonSchema(schema, close_objects=True))
    rng = random.Random(7)
    for steps in (0, 20, 100, 300, 500):
        validator.validate(json.loads(walker.sample(rng, steps)))
    kept = {True: 0, False: 0}
    for _ in range(many(60, 4)):
        likely = rng.random()
        value = {
            name: (rng.random() < 0.5 if name in flags else "x")
            for name in names
            if (required and name in flags) or rng.random() < likely
        }
        if rng.random() < 0.5:
            value |= dict.fromkeys(reasons, "x")
            value |= {name: True for name in flags if asked == "the next"}
        value = {name: value[name] for name in names if name in value}
        valid = validator.is_valid(value)
        assert walker.accepts_value(value) is valid, value
        kept[valid] += 1
    assert min(kept.values()) > 2


REASONS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "required": ("some text", [{"required": ["why{}"]}]),
    "one value": ("no", [{"properties": {"why{}": {"const": "no"}}, "required": ["why{}"]}]),
    "one of two": ("x", [{"required": ["why{}"]}, {"required": ["who{}"]}]),
}


@pytest.mark.parametrize("asked", REASONS)
def test_alternatives_that_overlap_do_not_multiply_within_an_answer(asked: str) -> None:
    """Whether a flag is set or not, both of its alternatives may hold."""
    reason, ways = REASONS[asked]
    flags = [f"has{n}" for n in range(12)]
    others = [f"{word}{n}" for word in ("why", "who") for n in range(12)]
    schema = {
        "type": "object",
        "properties": {
            **{flag: {"type": "boolean"} for flag in flags},
            **{other: {"type": "string"} for other in others},
        },
        "allOf": [
            {
                "anyOf": [
                    {"properties": {flag: {"const": False}}},
                    *json.loads(json.dumps(ways).replace("{}", str(number))),
                ]
            }
            for number, flag in enumerate(flags)
        ],
        "required": flags,
    }
    validator = jsonschema.Draft202012Validator(schema)
    program = compile_program(JsonSchema(schema, close_objects=True))
    walker = Walker(program.derivatives.pool, program.root)
    rng = random.Random(3)
    for likely in (0.0, 0.5, 1.0):
        value: dict[str, Any] = {flag: rng.random() < likely for flag in flags}
        value |= {f"why{n}": reason for n in range(12) if value[f"has{n}"] and n != 7}
        value |= {"who7": reason} if value["has7"] and asked == "one of two" else {}
        walker.derivatives.allow(50_000)
        assert walker.accepts_value(value) is validator.is_valid(value)
        value = {name: value.get(name, reason) for name in [*flags, *others]}
        assert walker.accepts_value(value)
        assert validator.is_valid(value)


def test_items_differ_in_a_list_that_alternatives_constrain() -> None:
    names = ["tags", "a", "b", "c", "d"]
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            **{name: {"type": "integer"} for name in names[1:]},
        },
        "required": ["tags"],
        "allOf": [
            {"anyOf": [{"properties": {"tags": {"minItems": 2}}}, {"required": [name]}]}
            for name in names[1:]
        ],
    }
    validator = jsonschema.Draft202012Validator(schema)
    walker = Walker.of(JsonSchema(schema, close_objects=True))
    lists = [["x"] * n for n in range(4)] + [["x", "y"], ["x", "y", "x"], ["x", "y", "z"], ["xy"]]
    for tags, given in product(lists, range(5)):
        value = {"tags": tags, **dict.fromkeys(names[1 : 1 + given], 1)}
        assert walker.accepts_value(value) is validator.is_valid(value), value
    for seed in range(40):
        validator.validate(json.loads(walker.sample(random.Random(seed), 60)))


def test_alternatives_that_are_too_entangled_are_refused_when_they_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their lengths would take many combinations to compute, also during an answer."""
    monkeypatch.setattr("app.constraint.language.cases._MOST_COMBINATIONS", 30)
    rng = random.Random(0)
    names = [f"q{n}" for n in range(12)]
    values = {name: ["a", "b", "c" * (3 + n), "d" * (9 + 2 * n)] for n, name in enumerate(names)}
    slots = [name for name in names for _ in range(3)]
    groups: list[list[str]] = [[]]
    while not all(len(set(group)) == 4 for group in groups):
        rng.shuffle(slots)
        groups = [slots[place : place + 4] for place in range(0, len(slots), 4)]

    def without(name: str, *gone: int) -> dict[str, Any]:
        return {"enum": [value for n, value in enumerate(values[name]) if n not in gone]}

    def of(*some: str) -> dict[str, Any]:
        return {"properties": {name: without(name, 1) for name in some}}

    schema = {
        "type": "object",
        "properties": {
            "p": {"enum": ["aaaa", "bbbb"]},
            **{name: without(name) for name in names},
        },
        "required": ["p", *names],
        "allOf": [
            {
                "anyOf": [
                    {"properties": {"p": {"const": "aaaa"}}},
                    {"properties": {name: without(name, 0) for name in names}},
                ]
            },
            *({"anyOf": [of(*group[:2]), of(*group[2:])]} for group in groups),
        ],
    }
    with pytest.raises(ConstraintTooComplex, match="dependencies between alternatives"):
        compile_program(JsonSchema(schema, close_objects=True))
    spec = JsonSchema(schema, close_objects=True, relax=True)
    assert compile_program(spec).relaxed


@pytest.mark.parametrize("seed", range(many(400, 30)))
def test_alternatives_kept_apart_say_what_jsonschema_says(seed: int) -> None:
    """Alternatives that overlap in various ways; every object of four names and three values."""
    rng = random.Random(seed)
    schema = _with_conditions(rng)
    validator = jsonschema.Draft202012Validator(schema)
    objects = [
        dict(zip(names, values, strict=True))
        for size in range(5)
        for names in combinations("abcd", size)
        for values in product([1, 2, "x"], repeat=size)
    ]
    objects += [{**value, "e": 1} for value in objects[:40]]
    valid = [validator.is_valid(value) for value in objects]
    try:
        walker = Walker.of(JsonSchema(schema))
    except UnsatisfiableSchema:
        assert not any(valid)
        return
    for value, is_valid in zip(objects, valid, strict=True):
        assert walker.accepts_in_some_order(value) is is_valid, (schema, value)
    shortest = walker.derivatives.shortest(walker.root)
    assert len(shortest) == walker.derivatives.length(walker.root)
    validator.validate(json.loads(shortest))


def _with_conditions(rng: random.Random) -> dict[str, Any]:
    values = [{"const": 1}, {"enum": [1, "x"]}, {"type": "integer"}, {"not": {"const": 2}}, {}]

    def some() -> dict[str, Any]:
        names = rng.sample("abcd", rng.choice([1, 1, 1, 2]))
        schema: dict[str, Any] = {}
        if rng.random() < 0.8:
            schema["properties"] = {name: rng.choice(values) for name in names}
        if rng.random() < 0.4 or not schema:
            schema["required"] = rng.sample("abcd", rng.choice([1, 1, 2]))
        return schema

    def alternative() -> dict[str, Any]:
        kind = rng.random()
        if kind < 0.6:
            other = {"else": some()} if rng.random() < 0.3 else {}
            return {"if": some(), "then": some(), **other}
        if kind < 0.8:
            return {"anyOf": [some() for _ in range(rng.choice([2, 3]))]}
        if kind < 0.9:
            return {"not": some()}
        if kind < 0.95:
            names = {"propertyNames": {"minLength": 1}}
            return {"anyOf": [{**some(), **names}, {**some(), **names, "maxProperties": 2}]}
        return {"dependentRequired": {rng.choice("abcd"): [rng.choice("abcd")]}}

    return {
        "type": "object",
        "properties": {
            name: rng.choice([{"type": ["integer", "string"]}, {}, {"enum": [1, 2, "x"]}])
            for name in "abcd"
        },
        "required": rng.sample("abcd", rng.choice([0, 0, 1])),
        "additionalProperties": rng.choice([False, True, {"type": "integer"}]),
        "allOf": [alternative() for _ in range(rng.choice([4, 5, 6]))],
    }


def test_a_schema_that_nests_deeply_is_worked_out_or_refused() -> None:
    value: Any = 1
    for _ in range(115):
        value = {"a": value}
    schema = {
        "$defs": {"l": {"properties": {"a": {"$ref": "#/$defs/l"}}}},
        "oneOf": [{"const": value}, {"$ref": "#/$defs/l"}],
    }
    with contextlib.suppress(ConstraintTooComplex, UnsatisfiableSchema):
        assert not Walker.of(JsonSchema(schema)).accepts_value(value)


def test_the_example_of_the_package_has_the_branches_that_its_docstring_draws() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": ["tea", "milk"]}},
        "oneOf": [
            {"properties": {"kind": {"const": "tea"}, "lemon": {"type": "boolean"}}},
            {"properties": {"kind": {"const": "milk"}}},
            {"properties": {"kind": {"const": "beer"}}},
        ],
        "not": {"required": ["straw"]},
        "unevaluatedProperties": False,
    }
    text = JsonText(json_pool(100_000), Limits())
    builder = SchemaBuilder(schema, text, close=False)
    root = builder._document.root
    tea, milk = builder._branches.of((root,))
    n, o = {"type": "object", "properties": {"straw": False}}, {"type": ["object"]}
    for branch, number, allowed in ((tea, 0, ["kind", "lemon"]), (milk, 1, ["kind"])):
        *given, rest = branch
        assert [each.schema for each in given] == [schema, n, o, schema["oneOf"][number]]
        assert list(rest.schema["properties"]) == allowed
        assert rest.schema["additionalProperties"].schema is False
    # If ``kind`` were not required, an object without it would satisfy all three.
    loose = SchemaBuilder({**schema, "required": []}, text, close=False)
    root = loose._document.root
    exactly_one = loose._branches._exactly_one
    assert exactly_one is not None
    first, *_ = exactly_one.of((root,), tuple(root.children("oneOf")))
    assert [(node.pointer, node.aspect) for node in first[1:]] == [
        ("/oneOf/0", ""),
        ("/oneOf/1", "not"),
        ("/oneOf/2", "not"),
    ]


def test_one_of_several_arrays_whose_items_differ_is_exact() -> None:
    """The negated part, ``uniqueItems``, also holds in the other alternative."""
    ways = [
        {"type": "array", "items": {"type": kind}, "uniqueItems": True}
        for kind in ("string", "integer")
    ]
    walker = Walker.of(JsonSchema({"oneOf": [*ways, {"type": "null"}]}))
    validator = jsonschema.Draft202012Validator({"oneOf": [*ways, {"type": "null"}]})
    for value in ([], ["a"], ["a", "b"], ["a", "a"], [1], [1, 2], [1, 1], [1, "a"], None, "a"):
        assert walker.accepts_value(value) is validator.is_valid(value), value
    assert not walker.pool.inexact


def test_arrays_with_repeated_items_are_excluded_with_a_note() -> None:
    unique = {"type": "array", "uniqueItems": True}
    walker = Walker.of(JsonSchema({"oneOf": [unique, {"type": ["array", "null"], "minItems": 1}]}))
    assert walker.accepts("null")
    assert walker.accepts("[]")
    assert not walker.accepts("[1, 1]")
    assert not walker.accepts("[1]")
    assert [each.pointer for each in walker.pool.inexact] == ["/oneOf/0/uniqueItems"]


@pytest.mark.parametrize(
    "contains",
    [
        {"contains": {"const": "b"}},
        {"contains": {"enum": ["a", "c", 1]}, "minContains": 2},
        {"contains": {"type": "string"}, "minContains": 3},
        {"contains": {"const": "d"}},
        {"contains": {"const": "a"}, "minItems": 4},
    ],
)
def test_listed_items_that_differ_beside_contains_are_exact(contains: dict[str, Any]) -> None:
    listed = ["a", "b", "c", 1]
    schema = {"type": "array", "items": {"enum": listed}, "uniqueItems": True, **contains}
    validator = jsonschema.Draft202012Validator(schema)
    values = [list(v) for size in range(5) for v in product(listed, repeat=size)]
    values.append([*listed, "a"])
    if not any(map(validator.is_valid, values)):
        with pytest.raises(UnsatisfiableSchema):
            compile_program(JsonSchema(schema))
        return
    walker = Walker.of(JsonSchema(schema))
    for value in values:
        assert walker.accepts_value(value) is validator.is_valid(value), value
    rng = random.Random(2)
    for _ in range(60):  # every prefix can be completed
        validator.validate(json.loads(walker.sample(rng)))
