"""JSON values: their types, and when JSON Schema calls two of them equal."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from app.constraint.schema.keywords import is_number


def identity(value: Any) -> Hashable:
    """Equal exactly for values that JSON Schema calls equal (core, section 4.2.2)."""
    if isinstance(value, dict):
        return ("object", frozenset((name, identity(member)) for name, member in value.items()))
    if isinstance(value, list):
        return ("array", tuple(map(identity, value)))
    return (type_of(value), value)


def type_of(value: Any) -> str:
    """The JSON type of a parsed value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if is_number(value):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
