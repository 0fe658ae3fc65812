"""A schema as a document: nodes named by JSON Pointer, and local references between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from app.constraint.limits import Limits
from app.core.errors import ConstraintTooComplex, InvalidSchema, UnsupportedSchema


@dataclass(frozen=True, slots=True)
class Node:
    """A subschema, known by the JSON Pointer (RFC 6901) to its place.

    ``aspect`` is "" for the subschema as it is written; other aspects are made of it, such as its
    negation, and their ``schema`` may hold nodes in the place of subschemas.
    """

    pointer: str
    schema: Any = field(compare=False)
    aspect: str = ""

    def child(self, *tokens: str | int) -> Node:
        """The subschema below, by keys and indices that are there."""
        pointer, value = self.pointer, self.schema
        for token in tokens:
            pointer += "/" + escape_token(str(token))
            value = value[token]
        return value if isinstance(value, Node) else Node(pointer, value)

    def place(self, keyword: str) -> str:
        """The pointer to a keyword of this subschema."""
        return f"{self.pointer}/{escape_token(keyword)}"


Goal = tuple[Node, ...]
"""Subschemas that one value must satisfy all together; () is satisfied by every value."""


def escape_token(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")


class Document:
    """The whole schema. Raises ``ConstraintTooComplex`` if it passes ``limits``."""

    def __init__(self, schema: Any, limits: Limits) -> None:
        _check_size(schema, limits)
        self.root = Node("", schema)
        self._base = _base_of(schema)

    def resolve(self, node: Node) -> Node:
        """The target of ``node``'s ``$ref``, which must be in this document."""
        reference, place = node.schema["$ref"], node.place("$ref")
        if not isinstance(reference, str):
            raise InvalidSchema("$ref must be a string", pointer=place)
        base, _, fragment = reference.partition("#")
        if base and base != self._base:
            raise UnsupportedSchema("$ref", place, "only references within the schema are followed")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            raise UnsupportedSchema("$ref", place, "only JSON Pointers are followed, no anchors")
        self._check_base(node)
        target = self.root
        for token in fragment.split("/")[1:]:
            target = self._step(target, token.replace("~1", "/").replace("~0", "~"), place)
        return target

    def _step(self, node: Node, token: str, place: str) -> Node:
        value = node.schema
        if isinstance(value, dict) and token in value:
            return node.child(token)
        if isinstance(value, list) and token.isascii() and token.isdecimal():
            index = int(token[:9])
            if index < len(value) and str(index) == token:
                return node.child(index)
        raise InvalidSchema("$ref points to nothing", pointer=place)

    def _check_base(self, node: Node) -> None:
        """Refuse references that an ``$id`` on the way down would send elsewhere."""
        here = self.root
        for token in node.pointer.split("/")[1:]:
            here = self._step(here, token.replace("~1", "/").replace("~0", "~"), node.pointer)
            if isinstance(here.schema, dict):
                own = here.schema.get("$id")
                if isinstance(own, str) and not own.startswith("#"):
                    reason = "references below an embedded $id are not followed"
                    raise UnsupportedSchema("$id", here.place("$id"), reason)


def _base_of(schema: Any) -> str | None:
    own = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    return own.partition("#")[0] if isinstance(own, str) else None


def _check_size(schema: Any, limits: Limits) -> None:
    """Count before anything else looks at the schema; no recursion."""
    values, size = 0, 0
    level = [schema]
    depth = 0
    while level:
        if depth > limits.schema_nesting:
            raise ConstraintTooComplex(f"a schema nested deeper than {limits.schema_nesting}")
        below: list[Any] = []
        for value in level:
            size += 1
            if isinstance(value, dict):
                below.extend(value.values())
                if not all(isinstance(key, str) for key in value):
                    raise InvalidSchema("the keys of a schema must be strings")
                size += sum(map(len, value))
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str):
                size += len(value)
            elif isinstance(value, float):
                if not math.isfinite(value):
                    raise InvalidSchema("a schema holds a number that is not finite")
            elif value is not None and not isinstance(value, bool | int):
                raise InvalidSchema(f"a schema is JSON, and {type(value).__name__} is not")
        values += len(level)
        if values > limits.schema_values:
            raise ConstraintTooComplex(f"a schema of more than {limits.schema_values} values")
        if size > limits.schema_bytes:
            raise ConstraintTooComplex(f"a schema of more than {limits.schema_bytes} bytes")
        level, depth = below, depth + 1
