"""The vocabulary: which keywords assert what about which type, and what shape they must have.

Keywords of no vocabulary, and those that only annotate, are ignored on purpose, as the
specification asks. Keywords that assert something and are not enforced here are refused by name
where they would apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.constraint.schema.document import Node
from app.core.errors import InvalidSchema, UnsupportedSchema

TYPES = ("null", "boolean", "number", "string", "array", "object")
"""The types of JSON values; ``integer`` is a part of ``number``."""

ENFORCED: dict[str, tuple[str, ...]] = {
    "null": (),
    "boolean": (),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties"),
}
"""Keywords that restrict values of one type."""

REFUSED: dict[str, tuple[str, ...]] = {
    "null": (),
    "boolean": (),
    "number": ("divisibleBy",),
    "string": (),
    "array": ("uniqueItems", "contains", "unevaluatedItems"),
    "object": (
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedProperties",
    ),
}

REFUSED_EVERYWHERE = ("not", "if", "oneOf", "$dynamicRef", "$recursiveRef", "disallow", "extends")

FOR_ALL_TYPES = ("type", "enum", "const")

NOT_INTEGER = ("not", "integer")
"""Keywords of the negations that ``negation`` makes; tuples, so that no schema can hold them. This
one, with True: the number is not an integer (``1.0`` is one, as the specification says)."""
NOT_MULTIPLE_OF = ("not", "multipleOf")
"""The number is not a multiple of this one."""
NOT_PATTERN = ("not", "pattern")
"""The string does not match this pattern."""
NOT_FORMAT = ("not", "format")
"""The string does not have this (known) format, however a validator reads it."""
NOT_ENUM = ("not", "enum")
"""The value is none of this list of numbers, strings, booleans and nulls."""

_VACUOUS: dict[str, Callable[[Any], bool]] = {
    "uniqueItems": lambda value: value is False,
    "unevaluatedItems": lambda value: value in (True, {}) and value != 1,
    "unevaluatedProperties": lambda value: value is True or value == {},
    "patternProperties": lambda value: value == {},
    "propertyNames": lambda value: value is True or value == {},
    "minProperties": lambda value: value == 0 and value is not False,
    "dependentRequired": lambda value: value == {},
    "dependentSchemas": lambda value: value == {},
    "dependencies": lambda value: value == {},
}
"""Values with which a refused keyword asserts nothing."""


def restricts(node: Node, kind: str) -> bool:
    """Whether ``node`` says anything about values of the type ``kind`` beyond ``type``."""
    schema = node.schema
    return any(keyword in schema for keyword in (*ENFORCED[kind], *REFUSED[kind]))


def refuse_unsupported(node: Node, kind: str | None = None) -> None:
    """Raise ``UnsupportedSchema`` for a keyword that applies to ``kind`` (None: to any value)."""
    schema = node.schema
    for keyword in REFUSED_EVERYWHERE if kind is None else REFUSED[kind]:
        if keyword in schema and not _is_vacuous(node, keyword):
            raise UnsupportedSchema(keyword, node.place(keyword))


def check_shapes(node: Node) -> None:
    """Raise ``InvalidSchema`` for a keyword whose value has the wrong shape."""
    schema = node.schema
    if not isinstance(schema, dict):
        raise InvalidSchema("a schema must be an object or a boolean", pointer=node.pointer)
    for keyword in _SHAPES.keys() & schema.keys():
        shape, expected = _SHAPES[keyword]
        if not shape(schema[keyword]):
            raise InvalidSchema(f"{keyword} must be {expected}", pointer=node.place(keyword))


def _is_vacuous(node: Node, keyword: str) -> bool:
    schema = node.schema
    if keyword == "if":
        return "then" not in schema and "else" not in schema
    if keyword == "oneOf":
        return isinstance(schema[keyword], list) and len(schema[keyword]) == 1
    vacuous = _VACUOUS.get(keyword)
    return vacuous is not None and vacuous(schema[keyword])


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return is_number(value) and value >= 0 and value == int(value)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(member, str) for member in value)


def _is_schemas(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_schema, value))


def _is_type(value: Any) -> bool:
    names = (*TYPES, "integer")
    if isinstance(value, str):
        return value in names
    return isinstance(value, list) and len(value) > 0 and all(name in names for name in value)


_Shape = tuple[Callable[[Any], bool], str]
_NUMBER: _Shape = (is_number, "a number")
_COUNT: _Shape = (_is_count, "a non-negative integer")
_SCHEMA: _Shape = (_is_schema, "a schema")
_SCHEMAS: _Shape = (_is_schemas, "a list of schemas, one or more")
_TEXT: _Shape = (lambda value: isinstance(value, str), "a string")

_SHAPES: dict[str, _Shape] = {
    "type": (_is_type, "the name of a type or a list of such names"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "multipleOf": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "pattern": _TEXT,
    "format": _TEXT,
    "items": (
        lambda value: _is_schema(value) or _is_schemas(value) or value == [],
        "a schema, or a list of schemas in older drafts",
    ),
    "prefixItems": _SCHEMAS,
    "additionalItems": _SCHEMA,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "properties": (
        lambda value: isinstance(value, dict) and all(map(_is_schema, value.values())),
        "an object whose values are schemas",
    ),
    "required": (_is_strings, "a list of strings"),
    "additionalProperties": _SCHEMA,
    "anyOf": _SCHEMAS,
    "allOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
}
