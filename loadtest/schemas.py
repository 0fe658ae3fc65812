"""Schemas changed so that no server has seen them before."""

from __future__ import annotations

from typing import Any


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
