"""Random schemas and sets of texts with choices of every kind."""

from __future__ import annotations

import random
from typing import Any

from app.core.specs import Choice, Regex

TextSpec = Choice | Regex

_WORDS = (
    "a",
    "ab",
    "abab",
    "abc",
    "b",
    "me",
    "name",
    "na",
    "nana",
    "or",
    "orab",
    "é",
    "éa",
    "",
    "ll",
    "12",
)


def random_schema(rng: random.Random, depth: int = 0) -> Any:
    """A random schema with choices of any kind, and texts between them."""
    kinds = ["enum", "enum", "boolean", "integers", "const", "nullable", "union"]
    kind = rng.choice(kinds if depth else ["object", "object", "array", *kinds])
    if depth == 1 and rng.random() < 0.3:
        kind = rng.choice(["object", "array", "set", "map"])
    match kind:
        case "enum":
            values: list[Any] = rng.sample(
                [*_WORDS, 1, 12, 121, -3, None, True, 2.5], rng.randint(2, 6)
            )
            return {"enum": values}
        case "boolean":
            return {"type": "boolean"}
        case "integers":
            low = rng.randint(-12, 5)
            return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 30)}
        case "const":
            return {"const": rng.choice([*_WORDS, 5])}
        case "nullable":
            return {"type": ["string", "null"], "maxLength": 4}
        case "union":
            return {"anyOf": [random_schema(rng, 2), random_schema(rng, 2)]}
        case "array":
            items = random_schema(rng, depth + 1)
            low = rng.randint(0, 2)
            return {"type": "array", "items": items, "minItems": low, "maxItems": low + 2}
        case "set":
            few = {"enum": rng.sample([*_WORDS, 1, 12, None], rng.randint(2, 5))}
            many = {"type": "string", "pattern": "^z", "maxLength": 3}
            items = {"anyOf": [few, rng.choice([many, {"type": "integer"}])]}
            return {"type": "array", "items": items, "uniqueItems": True, "maxItems": 4}
        case "map":
            few = {"enum": rng.sample(_WORDS, 3)}
            value = random_schema(rng, depth + 1)
            least = rng.randint(0, 2)
            return {
                "type": "object",
                "propertyNames": few,
                "additionalProperties": value,
                "minProperties": least,
            }
    names = rng.sample(["a", "ab", "me", "name", "or"], rng.randint(1, 3))
    required = [name for name in names if rng.random() < 0.6]
    properties = {name: random_schema(rng, depth + 1) for name in names}
    return {"type": "object", "properties": properties, "required": required}


def random_texts(rng: random.Random) -> TextSpec:
    """Texts, some with common prefixes, some with characters inside that may end a text."""
    words = [*_WORDS, "a.", "a. b", "or, ab", "na me", "name\n", "a+"]
    if rng.random() < 0.3:
        return Regex(rng.choice(["[ab]{1,3}", "(na|me)?( or)?", "(ab|name)[.,!]?", "1[0-9]?"]))
    return Choice(tuple(rng.sample(words, rng.randint(1, 7))))
