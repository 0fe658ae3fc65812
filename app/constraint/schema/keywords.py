"""The vocabulary: the type of values that each keyword restricts, and the form of its own value.

Unknown keywords and annotations are ignored on purpose, as the specification asks. Keywords that
cannot be enforced are refused by name where they would apply.

Equal subschemas at different places are built once: see ``SubschemaCache``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from app.constraint.schema.document import (
    SUBSCHEMA,
    SUBSCHEMA_LISTS,
    SUBSCHEMA_MAPS,
    Node,
    escape_token,
)
from app.core.arguments import json_kind
from app.core.errors import InvalidSchema
from app.core.verbatim import Source

TYPES = ("null", "boolean", "number", "string", "array", "object")
"""The types of JSON values; ``integer`` is a part of ``number``."""

EXACT_CHOICE = "x-choice"
"""Extension: ``"exact"`` draws one of the node's values as a whole, by its probability."""

NOT_INTEGER = ("not", "integer")
"""One of the negated keywords, which only schemas made by ``negation`` have; they are tuples, so
that no client's schema can contain them. With True: the number is not an integer (``1.0`` is one,
as the specification says)."""
NOT_MULTIPLE_OF = ("not", "multipleOf")
"""The number is not a multiple of this one."""
NOT_PATTERN = ("not", "pattern")
"""The string does not match this pattern."""
NOT_FORMAT = ("not", "format")
"""The string does not have this (known) format, however a validator reads it."""
NOT_ENUM = ("not", "enum")
"""The value is none of this list of numbers, strings, booleans and nulls."""
NOT_UNIQUE = ("not", "uniqueItems")
"""Two items of the array are equal. No such array is written."""
VERBATIM = "x-verbatim"
"""Extension: the string is a quote from the prompt. See ``verbatim_source``."""
GRAMMAR = "x-grammar"
"""Extension: the string is a text of a grammar. See ``strings``."""
SOME_MEMBER = ("some", "member")
"""The object has a member as this ``shapes.SomeMember`` describes."""
CASES = ("some", "case")
"""The object satisfies all nodes of one of these tuples of nodes, which speak of named members."""
SOME_ITEM = ("some", "item")
"""The array has, from the index ``[0]`` on, an item that satisfies the node ``[1]``."""

_ASSERTIONS: dict[str, frozenset[Any]] = {
    "null": frozenset([NOT_ENUM]),
    "boolean": frozenset([NOT_ENUM]),
    "number": frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
    | {"multipleOf", NOT_INTEGER, NOT_MULTIPLE_OF, NOT_ENUM},
    "string": frozenset(["minLength", "maxLength", "pattern", "format", VERBATIM, GRAMMAR])
    | {NOT_PATTERN, NOT_FORMAT, NOT_ENUM},
    "array": frozenset(["items", "prefixItems", "additionalItems", "unevaluatedItems"])
    | {"minItems", "maxItems", "uniqueItems", "contains", SOME_ITEM}
    | {NOT_UNIQUE},
    "object": frozenset(["properties", "additionalProperties", "patternProperties", "required"])
    | {"unevaluatedProperties", "propertyNames", "minProperties", "maxProperties", SOME_MEMBER}
    | {CASES},
}
"""Keywords that restrict values of one type."""
NOT_BESIDE_GRAMMAR = _ASSERTIONS["string"] - {GRAMMAR}
"""Keywords that must not restrict a string that has a grammar."""

_PARTS: tuple[Any, ...] = ("", "null", {}, [""])
"""Samples that include a valid part for each keyword whose value has parts."""
_LONGEST_SHOWN = 80
"""Maximum characters of a value in a message."""

OWN_ASSERTIONS = frozenset(["type", "enum", "const"]).union(*_ASSERTIONS.values())
"""Keywords that ``branches`` leaves in place; the others it follows and distributes."""

FOLLOWED = OWN_ASSERTIONS.union(
    ["$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if"],
    ["dependentRequired", "dependentSchemas", "dependencies"],
)
"""All keywords that say something about a value."""


def restricts(node: Node, kind: str) -> bool:
    """Whether ``node`` says anything about values of the type ``kind`` beyond ``type``."""
    return not _ASSERTIONS[kind].isdisjoint(node.schema)


def types_of(node: Node) -> list[str] | None:
    """The names in the keyword ``type``, None where it is not there."""
    names = node.schema.get("type")
    return [names] if isinstance(names, str) else names


def admits_kind(node: Node, kind: str) -> bool:
    """Whether ``type`` leaves any value of the type ``kind``."""
    names = types_of(node)
    return names is None or kind in names or (kind == "number" and "integer" in names)


def kinds_of(nodes: Iterable[Node]) -> list[str]:
    """The types that ``type`` in all ``nodes`` allows, at least in part."""
    kinds = list(TYPES)
    for node in nodes:
        names = types_of(node)
        if names is not None:
            kinds = [k for k in kinds if k in names or (k == "number" and "integer" in names)]
    return kinds


def integers_only(node: Node) -> bool:
    """Whether ``type`` allows only integers among the numbers."""
    names = types_of(node)
    return names is not None and "number" not in names and "integer" in names


def counts(nodes: Iterable[Node], least: str, most: str) -> tuple[int, int | None]:
    """The tightest of two keywords that bound a count; None without an upper bound."""
    schemas = [node.schema for node in nodes]
    low = max((int(schema[least]) for schema in schemas if least in schema), default=0)
    return low, min((int(schema[most]) for schema in schemas if most in schema), default=None)


def verbatim_source(node: Node) -> Source | None:
    """The source of quotes that ``x-verbatim`` of ``node`` asks for; None: it asks for none."""
    return Source.asked(node.schema.get(VERBATIM, False))


def check_shapes(node: Node) -> None:
    """Raise ``InvalidSchema`` for a keyword whose value has the wrong shape."""
    schema = node.schema
    if not isinstance(schema, dict):
        raise InvalidSchema("a schema must be an object or a boolean", pointer=node.pointer)
    for keyword in _SHAPES.keys() & schema.keys():
        shape, expected = _SHAPES[keyword]
        value, pointer = schema[keyword], node.pointer_to(keyword)
        if shape(value):
            continue
        if not any(shape([part]) or shape({"": part}) for part in _PARTS):
            at_fault = []  # the keyword's valid values have no parts
        elif isinstance(value, dict):
            at_fault = [(key, part) for key, part in value.items() if not shape({key: part})]
        else:
            parts = enumerate(value) if isinstance(value, list) else ()
            at_fault = [(str(key), part) for key, part in parts if not shape([part])]
        if at_fault:
            key, value = at_fault[0]
            pointer = f"{pointer}/{escape_token(key)}"
        text = json.dumps(value, ensure_ascii=False)
        text = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
        raise InvalidSchema(f"{keyword} must be {expected}, not {text}", pointer=pointer)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def identity(value: Any) -> Hashable:
    """A key that is equal exactly for values equal in JSON Schema (core, section 4.2.2)."""
    if isinstance(value, dict):
        return ("object", frozenset((name, identity(member)) for name, member in value.items()))
    if isinstance(value, list):
        return ("array", tuple(map(identity, value)))
    return (json_kind(value), value)


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


def _is_verbatim(value: Any) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, bool) or (isinstance(value, str) and value != "")
    part, words = value.get("part"), value.get("words", False)
    return (
        value.keys() <= {"part", "words"}
        and isinstance(words, bool)
        and (part is None or (isinstance(part, str) and part != ""))
    )


def _is_grammar(value: Any) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, str)
    return value.keys() == {"syntax", "definition"} and _is_strings([*value.values()])


def _is_map_of(shape: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, "the name of a type or a list of such names"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    **dict.fromkeys(["minimum", "maximum"], (is_number, "a number")),
    **dict.fromkeys(
        ["exclusiveMinimum", "exclusiveMaximum"],
        (lambda value: isinstance(value, int | float), "a number, or a boolean in draft 4"),
    ),
    "multipleOf": (lambda value: is_number(value) and value > 0, "a number above 0"),
    **dict.fromkeys(["pattern", "format"], (lambda value: isinstance(value, str), "a string")),
    **dict.fromkeys(
        [
            *("minLength", "minItems", "minContains", "minProperties"),
            *("maxLength", "maxItems", "maxContains", "maxProperties"),
        ],
        (lambda x: is_number(x) and x >= 0 and x == int(x), "a non-negative integer"),
    ),
    VERBATIM: (_is_verbatim, 'a boolean, "words", the name of a part, or both in an object'),
    GRAMMAR: (_is_grammar, "a grammar's text, or an object with its syntax and definition"),
    "uniqueItems": (lambda value: isinstance(value, bool), "a boolean"),
    "required": (_is_strings, "a list of strings"),
    "dependentRequired": (_is_map_of(_is_strings), "an object whose values are lists of strings"),
    "dependencies": (
        _is_map_of(lambda value: _is_schema(value) or _is_strings(value)),
        "an object whose values are schemas or lists of strings",
    ),
    "items": (
        lambda value: _is_schema(value) or _is_schemas(value) or value == [],
        "a schema, or a list of schemas in older drafts",
    ),
    **dict.fromkeys(
        [
            *("additionalItems", "additionalProperties", "unevaluatedItems"),
            *("unevaluatedProperties", "propertyNames", "contains", "not", "if", "then", "else"),
        ],
        (_is_schema, "a schema"),
    ),
    **dict.fromkeys(
        ["prefixItems", "anyOf", "allOf", "oneOf"], (_is_schemas, "a list of schemas, one or more")
    ),
    **dict.fromkeys(
        ["properties", "patternProperties", "dependentSchemas"],
        (_is_map_of(_is_schema), "an object whose values are schemas"),
    ),
}


_SAYS_NOTHING = frozenset(
    ["title", "description", "default", "examples", "$comment", "$schema", "$defs", "definitions"]
)
"""Keywords that restrict nothing, where they stand."""


class SubschemaCache:
    """Numbers the subschemas of one document; those equal but for annotations share a number."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, int] = {}
        """Numbers by ``id`` of the document's objects."""

    def of(self, schema: Any) -> int:
        """The number of a subschema. Costs its size once."""
        known = self._known.get(id(schema))
        if known is None:
            meaning = self._meaning(schema) if isinstance(schema, dict) else repr(schema)
            known = self._known[id(schema)] = self._numbers.setdefault(meaning, len(self._numbers))
        return known

    def _meaning(self, schema: dict[str, Any]) -> Hashable:
        """A key that is equal for subschemas with equal keywords in the same order."""
        meaning: list[Hashable] = []
        for keyword, value in schema.items():
            if keyword in _SAYS_NOTHING:
                continue
            meaning.append(keyword)
            if keyword in SUBSCHEMA_MAPS and isinstance(value, dict):
                meaning.append((*value, *[self.of(each) for each in value.values()]))
            elif keyword in SUBSCHEMA_LISTS and isinstance(value, list):
                meaning.append(tuple([self.of(each) for each in value]))
            elif keyword in SUBSCHEMA and isinstance(value, dict):
                meaning.append(self.of(value))
            else:
                meaning.append(repr(value))
        return tuple(meaning)
