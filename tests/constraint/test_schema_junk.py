"""Schemas that are partly or wholly invalid compile or raise a ``ConstraintError``."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from app.constraint.program import compile_program
from app.core.errors import ConstraintError
from app.core.specs import JsonSchema

COUNTS = ["minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"]
COUNTS += ["minProperties", "maxProperties"]
LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"]
MAPS = ["properties", "patternProperties", "$defs", "dependentSchemas", "dependencies"]
SINGLE = ["not", "if", "then", "else", "items", "contains", "propertyNames", "additionalItems"]
SINGLE += ["additionalProperties", "unevaluatedProperties", "unevaluatedItems"]
OTHERS = ["type", "enum", "const", "required", "pattern", "format", "uniqueItems", "multipleOf"]
OTHERS += ["minimum", "exclusiveMinimum", "$ref", "$id", "$anchor", "$schema", "$dynamicRef"]
OTHERS += ["$recursiveRef", "dependentRequired"]
SCALARS: list[Any] = [None, True, False, 0, 1, -1, 1.5, 1e308, 10**30, 5e-324, "", "a", "#", "#/"]
SCALARS += ["#/$defs/a", "^a", "(", "string", "object", "array", "\ud800", "a\x00b", [], {}, [1]]
SCALARS += [["a"], {"a": 1}, "http://json-schema.org/draft-07/schema#"]


class Junk:
    """Random values that partly look like schemas."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def value(self, depth: int) -> Any:
        draw = self.rng.random()
        if depth <= 0 or draw < 0.4:
            return self.rng.choice(SCALARS)
        if draw < 0.6:
            return [self.value(depth - 1) for _ in range(self.rng.randint(0, 3))]
        return self.schema(depth - 1)

    def schema(self, depth: int) -> Any:
        if depth <= 0:
            return self.rng.choice([True, False, {}, {"type": "string"}, {"required": ["a"]}])
        keywords = self.rng.sample([*COUNTS, *LISTS, *MAPS, *SINGLE, *OTHERS], 3)
        return {keyword: self.argument(keyword, depth) for keyword in keywords}

    def argument(self, keyword: str, depth: int) -> Any:
        if self.rng.random() < 0.1:
            return self.value(depth)
        if keyword in COUNTS:
            return self.rng.choice([0, 1, 2, 3, 10**30, 1e308])
        if keyword in LISTS:
            return [self.schema(depth - 1) for _ in range(self.rng.randint(1, 3))]
        if keyword in MAPS:
            return {name: self.schema(depth - 1) for name in self.rng.sample(["a", "b", "^a"], 2)}
        if keyword in SINGLE:
            return self.schema(depth - 1)
        known = {"type": "object", "enum": [1, "a", {"a": 1}, [1]], "required": ["a"]}
        return known.get(keyword, self.value(1))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_sent_as_a_schema_is_compiled_or_refused(seed: int) -> None:
    junk = Junk(seed)
    for _ in range(400):
        schema = junk.schema(junk.rng.randint(1, 4))
        try:
            compile_program(JsonSchema(schema, close_objects=junk.rng.random() < 0.5))
        except ConstraintError:
            continue
        except Exception as error:
            raise AssertionError(json.dumps(schema)) from error
