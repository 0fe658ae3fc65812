"""Random schemas of the kinds people send, for tests that generate and validate."""

from __future__ import annotations

import random
from typing import Any

PATTERNS = ["^[a-z]{2,6}$", "^[A-Z]{2}-[0-9]{1,3}$", "^(red|green|blue)-[0-9]$", "x[ab]*y"]
FORMATS = ["date", "time", "date-time", "email", "ipv4", "uuid"]
KEYS = ["id", "name", "naïve", "a", "ab", "abc", "first name", "größe", "tags", "n"]


def random_schema(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """A schema of OpenAI's strict subset, an object at the top."""
    names = rng.sample(KEYS, rng.randint(1, 4))
    required = [name for name in names if rng.random() < 0.7]
    return {
        "type": "object",
        "properties": {name: _value(rng, depth) for name in names},
        "required": required,
        "additionalProperties": False,
    }


def _value(rng: random.Random, depth: int) -> dict[str, Any]:
    kinds = [_string, _number, _fixed]
    if depth > 0:
        kinds += [_array, _either, lambda rng, depth: random_schema(rng, depth - 1)]
    return rng.choice(kinds)(rng, depth)


def _string(rng: random.Random, depth: int) -> dict[str, Any]:
    choice = rng.randrange(4)
    if choice == 0:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if choice == 1:
        return {"type": "string", "format": rng.choice(FORMATS)}
    if choice == 2:
        low = rng.randint(0, 3)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 8)}
    return {"type": "string"}


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(-1000, 1000)
    choice = rng.randrange(4)
    if choice == 0:
        return {"type": "integer"}
    if choice == 1:
        return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 5000)}
    if choice == 2:
        return {"type": "number", "exclusiveMinimum": low / 8, "maximum": low / 8 + 10.5}
    return {"type": "number"}


def _fixed(rng: random.Random, depth: int) -> dict[str, Any]:
    return rng.choice(
        [
            {"type": "boolean"},
            {"type": ["string", "null"], "maxLength": 4},
            {"enum": ["small", "smaller", "smallest", 12, None]},
            {"const": {"unit": "°C", "values": [1, 2.5, True]}},
        ]
    )


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(0, 2)
    items = _value(rng, depth - 1)
    return {"type": "array", "items": items, "minItems": low, "maxItems": low + rng.randint(0, 3)}


def _either(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_value(rng, depth - 1), _value(rng, depth - 1)]}
