"""MaskBench's schemas, one after another, with property names that are new to the server.

Schemas that renaming would break are left out: those with references through ``properties``, and
those that require a name without listing it in ``properties`` of the same object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.requests import Request, Schema
from loadtest.schemas import renamed
from loadtest.workloads.base import DEFAULT_MAX_TOKENS
from tools import datasets

_PROPERTY_REFERENCE = re.compile(r'"\$ref": "#[^"]*/properties/')
_STRIDE = 997
"""A prime: neighbours in the file have the same source, and a run should cover all sources."""


@dataclass(frozen=True, slots=True)
class MaskBench:
    """Prompts do not contain the schema, so that runs without constraint have the same prompts."""

    name: str
    schemas: Sequence[Mapping[str, Any]]
    constrained: bool = True
    always_fresh: bool = True

    def request(self, number: int, nonce: str) -> Request:
        schema = self.schemas[number * _STRIDE % len(self.schemas)]
        return Request(
            self.name,
            [{"role": "user", "content": "Give me an example, please."}],
            Schema(renamed(schema, nonce)) if self.constrained else None,
            DEFAULT_MAX_TOKENS if self.constrained else 16,
            exact_length=not self.constrained,
        )


def maskbench(name: str, *, constrained: bool = True) -> MaskBench:
    schemas = [case["schema"] for case in datasets.maskbench()]
    return MaskBench(name, [schema for schema in schemas if _can_be_renamed(schema)], constrained)


def _can_be_renamed(schema: Any) -> bool:
    text = json.dumps(schema)
    has_names = isinstance(schema, dict) and '"properties"' in text
    return has_names and not _PROPERTY_REFERENCE.search(text) and _lists_required_names(schema)


def _lists_required_names(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(map(_lists_required_names, schema))
    if not isinstance(schema, dict):
        return True
    required, properties = schema.get("required"), schema.get("properties", {})
    if isinstance(required, list) and not set(map(str, required)) <= set(properties):
        return False
    return all(map(_lists_required_names, schema.values()))
