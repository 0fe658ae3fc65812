"""Constraints from untrusted clients: schemas that attack a compiler, and huge valid schemas.

Each is a ``response_format`` with a name; variants differ, so that none is found in a cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    response_format: dict[str, Any]
    prompt: str = "Answer."


def hostile(count: int) -> list[Attack]:
    """``count`` attacks, every kind in turn; attacks of a kind differ."""
    kinds = list(_SCHEMAS.items())
    return [
        Attack(name, _schema_format(build(number // len(kinds))), _prompt(name, number))
        for number, (name, build) in enumerate(islice(cycle(kinds), count))
    ]


def huge(count: int) -> list[Attack]:
    """``count`` valid schemas of 100 KB to 1 MB: many properties, long enums, long texts."""
    return [
        Attack(f"huge {number}", _schema_format(_huge_schema(random.Random(number))))
        for number in range(count)
    ]


def _prompt(name: str, number: int) -> str:
    make = _DOCUMENTS.get(name)
    return "Answer." if make is None else make(random.Random(number))


def _schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "attack", "schema": schema}}


def _text(pattern: str) -> Callable[[int], Any]:
    """A string with ``pattern``; variants differ in a letter at its end."""
    return lambda variant: {"type": "string", "pattern": pattern + "x" * variant}


def _nested_objects(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def _reference_chain(variant: int) -> Any:
    size = 3_000 + variant
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(size)}
    return {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{size}": {"type": "boolean"}}}


def _exponential_union(variant: int) -> Any:
    """2 to the power of 40 ways to satisfy all of it."""
    pairs = [
        {"anyOf": [{"minLength": i + variant}, {"maxLength": 90 + i + variant}]} for i in range(40)
    ]
    return {"type": "string", "allOf": pairs}


def _doubling_references(variant: int) -> Any:
    """Each definition holds the next one twice: 2 to the power of 60 leaves."""
    definitions: dict[str, Any] = {
        f"d{i}": {
            "type": "array",
            "prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * 2,
            "minItems": 2,
            "maxItems": 2,
        }
        for i in range(60 + variant)
    }
    definitions[f"d{60 + variant}"] = {"type": "null"}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def _intersected_patterns(variant: int) -> Any:
    patterns = [f"^(.*{letter}.{{{9 + variant}}})*$" for letter in "abcdef"]
    return {"type": "string", "allOf": [{"pattern": pattern} for pattern in patterns]}


def _coprime_lengths(variant: int) -> Any:
    """Only lengths that are multiples of all of the primes satisfy it."""
    primes = (7, 11, 13, 17, 19, 23, 29 + variant)
    return {"type": "string", "allOf": [{"pattern": f"^(a{{{p}}})*b$"} for p in primes]}


def _open_properties(variant: int) -> Any:
    names = [f"name{i}v{variant}" for i in range(3_000)]
    properties = {name: {"type": "integer"} for name in names}
    return {"type": "object", "properties": properties, "additionalProperties": True}


def _no_base(variant: int) -> Any:
    node = {"type": "object", "properties": {f"n{variant}": {"$ref": "#"}}}
    return {**node, "required": [f"n{variant}"]}


_SCHEMAS: dict[str, Callable[[int], Any]] = {
    "30,000 parentheses": _text("(" * 30_000 + "a" + ")" * 30_000),
    "7,000 parentheses": _text("(" * 3_500 + "a" + ")" * 3_500),
    "repeat of 1,000,000": _text("^[ab]{1,1000000}$"),
    "repeats of repeats": _text("^(((a{1,1000}){1,1000}){1,1000}){1,1000}$"),
    "nested stars": _text("^((((a*)*)*)*)*b$"),
    ".*a.{16}": _text("^.*a.{16}$"),
    ".*a.{40} in a choice": _text("^(.*a.{40}|.*b.{41}|.*c.{42})$"),
    "six patterns": _intersected_patterns,
    "coprime lengths": _coprime_lengths,
    "exponential union": _exponential_union,
    "doubling references": _doubling_references,
    "recursion without base": _no_base,
    "a reference to itself": lambda v: {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"},
                                        "v": v}},
    "3,000 references in a chain": _reference_chain,
    "remote reference": lambda v: {"$ref": f"https://attack.example/{v}.json"},
    "file reference": lambda v: {"$ref": f"file:///etc/passwd?{v}"},
    "100,000 values": lambda v: {"enum": [f"value {v} {i}" for i in range(100_000)]},
    "100,000 numbers": lambda v: {"enum": [i * 3 + v for i in range(100_000)]},
    "NUL bytes": lambda v: {"type": "object", "properties": {f"a\0{v}": {"pattern": "\0+"}},
                            "required": [f"a\0{v}"]},
    "uri of 50 to 60": lambda v: {"type": "string", "format": "uri", "minLength": 50 + v,
                                  "maxLength": 60 + v},
    "email of 200": lambda v: {"type": "string", "format": "email", "minLength": 200 + v},
    "3,000 open properties": _open_properties,
    "90 objects deep": lambda v: _nested_objects(20 + v),
    "200 objects deep": lambda v: _nested_objects(200 + v),
    "1 MB of description": lambda v: {"type": "boolean", "description": "d" * (1 << 20) + str(v)},
    "items by the billion": lambda v: {"type": "array", "items": {"type": "integer"},
                                       "minItems": 10**9 + v, "maxItems": 10**12},
    "multiple of a prime": lambda v: {"type": "integer", "multipleOf": 1_000_003 + 2 * v},
    "a number of 300 digits": lambda v: {"type": "integer", "minimum": 10**300 + v,
                                           "multipleOf": 7},
    "not of not": lambda v: {"not": {"not": {"not": _text("a.{9}$")(v)}}},
    "oneOf of 300": lambda v: {"oneOf": [{"type": "string", "pattern": f"^{i}{v}.*$"}
                                         for i in range(300)]},
    "unique items": lambda v: {"type": "array", "uniqueItems": True, "maxItems": 40,
                               "items": {"enum": list(range(40 + v))}},
    "a ranking of 100": lambda v: {"type": "array", "uniqueItems": True, "minItems": 100 + v,
                                   "items": {"type": "integer", "minimum": 1,
                                             "maximum": 100 + v}},
    "all 80 of a list": lambda v: {"type": "array", "uniqueItems": True, "minItems": 80,
                                   "items": {"enum": [f"option {v} {i}" for i in range(80)]}},
    "so many names": lambda v: {"type": "object", "minProperties": 60 + v,
                                "additionalProperties": {"type": "integer"}},
    "unique texts": lambda v: {"type": "array", "uniqueItems": True, "minItems": 500 + v,
                               "items": {"type": "string", "pattern": "^(ab?)*$"}},
    "unique objects": lambda v: {"type": "array", "uniqueItems": True, "minItems": 50 + v,
                                 "items": {"type": "object", "properties": {
                                     each: {"type": "integer"} for each in "abcdefgh"}}},
    "200 words": lambda v: {"type": "string", "pattern": r"^(?:\S+\s+){0,199}\S+$",
                            "maxLength": 2_000 + v},
    "two counts of words": lambda v: {"type": "string", "maxLength": 2_000 + v, "allOf": [
        {"pattern": r"^(?:\S+\s+){0,99}\S+$"}, {"pattern": r"^(?:\w+\W+){0,80}\w+$"}]},
    "words of 3,000 characters": lambda v: {"type": "string", "minLength": 3_000 + v,
                                            "pattern": r"^(?:\S+\s+){10,500}\S+$"},
    "a pattern of 3,000 characters": lambda v: {"type": "string", "minLength": 3_000 + v,
                                                "pattern": r"^[a-z]+(-[a-z0-9]{1,9})*$"},
    "two patterns": lambda v: {"type": "string", "maxLength": 400 + v, "allOf": [
        {"pattern": r"^(\w{2,30}[ ,.]){1,60}$"},
        {"pattern": r"([A-Z]\d{1,20}|[aeiou]\w{3,9}x){2}"}]},
    "a quote of noise": lambda v: {"type": "string", "x-verbatim": True, "minLength": 3 + v},
    "quotes with patterns": lambda v: {"type": "array", "minItems": 3, "items": {
        "type": "string", "x-verbatim": True, "pattern": f"^.*a.{{{20 + v}}}b"}},
    "a quote of one letter": lambda v: {"type": "string", "x-verbatim": "words",
                                        "minLength": 30 + v},
}  # fmt: skip

_DOCUMENTS: dict[str, Callable[[random.Random], str]] = {
    "a quote of noise": lambda dice: "".join(chr(dice.randrange(32, 0x3000)) for _ in range(300)),
    "quotes with patterns": lambda dice: "".join(dice.choice("ab") for _ in range(1_500)),
    "a quote of one letter": lambda dice: "a" * (1_500 + dice.randrange(90)),
}
"""Prompts of the attacks with ``x-verbatim``: their values must occur in the prompt."""

KINDS = len(_SCHEMAS)
"""Number of kinds of hostile schemas."""


def _huge_schema(rng: random.Random) -> Any:
    """An object whose JSON has a random size of 100 KB to 1 MB."""
    wanted, size = rng.randrange(100_000, 1_000_000), 0
    properties: dict[str, Any] = {}
    for schema in _members(rng):
        name = f"{rng.choice(_WORDS)} {len(properties)}"
        properties[name] = schema
        size += len(name) + len(str(schema))
        if size > wanted:
            break
    required = [name for name in properties if rng.random() < 0.7]
    return {"type": "object", "properties": properties, "required": required}


def _members(rng: random.Random) -> Iterator[Any]:
    while True:
        kind = rng.randrange(5)
        text = {"description": " ".join(rng.choices(_WORDS, k=40))}
        if kind == 0:
            values = [f"{rng.choice(_WORDS)} {rng.randrange(10**6)}" for _ in range(500)]
            yield {"type": "string", "enum": sorted(set(values)), **text}
        elif kind == 1:
            yield {"type": "integer", "minimum": 0, "maximum": rng.randrange(1, 10**9), **text}
        elif kind == 2:
            yield {"type": "string", "maxLength": rng.randrange(1, 400), **text}
        elif kind == 3:
            yield {"type": "array", "items": {"type": "number"}, "maxItems": 50, **text}
        else:
            inner = {rng.choice(_WORDS): {"type": "boolean"}, "note": {"type": "string"}}
            yield {"type": "object", "properties": inner, "required": ["note"], **text}


_WORDS = (
    *("amount", "billing", "category", "delivery", "entity", "freight", "goods", "holder"),
    *("invoice", "journal", "keeper", "ledger", "market", "number", "order", "party"),
    *("quantity", "record", "supplier", "total", "unit", "volume", "weight", "zone"),
)
