"""Schemas as strict mode has them, and changed so that no server has seen them before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from tools import datasets


def strict_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object of these properties, all required, and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def renamed(schema: Any, suffix: str) -> Any:
    """``schema`` with the suffix at every property's name, required ones included.

    References that point through ``properties`` are not followed, so they no longer resolve.
    """
    if isinstance(schema, list):
        return [renamed(member, suffix) for member in schema]
    if not isinstance(schema, dict):
        return schema
    result = {keyword: renamed(value, suffix) for keyword, value in schema.items()}
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        result["properties"] = {
            name + suffix: renamed(value, suffix) for name, value in properties.items()
        }
        if isinstance(required, list):
            result["required"] = [
                name + suffix if name in properties else name for name in required
            ]
    return result


def distinct(schema: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """``schema`` with the suffix at its last property's name; answers stay as long as they were.

    Whoever caches by schema has not seen it, nor has who caches by what is still to come: in every
    place of an answer the last property is. Only objects whose properties are listed will do.
    """
    *others, (last, value) = schema["properties"].items()
    return {
        **schema,
        "properties": {**dict(others), last + suffix: value},
        "required": [last + suffix if name == last else name for name in schema["required"]],
    }


def distinct_schemas(path: Path) -> Iterator[Any]:
    """Without end: every schema of the file, then every one with other names, and so on."""
    schemas = [case["schema"] for case in datasets.maskbench(path)]
    for variant in count():
        for number, schema in enumerate(schemas):
            # Equal schemas occur in the file; their variants are to be distinct as well.
            yield renamed(schema, f" {number}.{variant}")
