"""Schemas for strict mode, and variants of schemas that no server has seen before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from tools import datasets


def strict_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object schema with these properties, all required, and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def renamed(schema: Any, suffix: str) -> Any:
    """``schema`` with the suffix added to the names of all properties, also in ``required``.

    References that point through ``properties`` are not renamed, so they no longer resolve.
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
    """``schema`` with the suffix added to the name of its last property; answers stay as long.

    Neither a cache by schema nor a cache by state has seen it, since the last property is still to
    come in every state of an answer. Requires an object with ``properties`` and ``required``.
    """
    *others, (last, value) = schema["properties"].items()
    return {
        **schema,
        "properties": {**dict(others), last + suffix: value},
        "required": [last + suffix if name == last else name for name in schema["required"]],
    }


def distinct_schemas(path: Path) -> Iterator[Any]:
    """An endless sequence: all schemas of the file, then all with other names, and so on."""
    schemas = [case["schema"] for case in datasets.maskbench(path)]
    for variant in count():
        for number, schema in enumerate(schemas):
            # The file has equal schemas; their variants must be distinct as well.
            yield renamed(schema, f" {number}.{variant}")
