"""Notations of function arguments other than one JSON text: rules for writing and reading them.

Models write a text for each argument, with strings as they are::

    <parameter=city>        before NAME between
    Paris                   VALUE
    </parameter>            after

Writing (``app.constraint``) and reading (``app.answer``) follow the same two rules: ``Readings``
lists the possible types of an argument, ``kind_of`` picks one of them for a text. Only texts that
read back as the intended value are allowed: if the schema has strings and numbers, no string may
look like a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from app.core.literals import Literals
from app.core.specs import JsonSchema

Kind = Literal["null", "boolean", "number", "string", "array", "object"]
KINDS: tuple[Kind, ...] = ("null", "boolean", "number", "string", "array", "object")
"""The types of JSON values; integers are numbers."""

_ANY = frozenset(KINDS)
_JSON_WORDS = {"null": None, "true": True, "false": False}
_PYTHON_WORDS = {"None": None, "True": True, "False": False}
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_MOST_SUBSCHEMAS = 1_000
"""Maximum subschemas visited for one argument; beyond them, it may be of any type."""
_LONELY_REF = re.compile(r"json-schema\.org/draft-0[3-7]/")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Arguments one after the other: ``before NAME between VALUE after``.

    Strings are written as they are, and other values as JSON unless stated otherwise.
    """

    before: str
    after: str
    stop: str
    """What strings cannot hold: the mark in ``after``."""
    between: str = ""
    empty: str = ""
    """Text in place of arguments if there are none."""
    types: tuple[tuple[Kind, str], ...] = ()
    """Text between name and value by the value's type, if the model writes types."""
    nested: Literals | None = None
    """How arrays and objects are written; None: as JSON."""
    python_words: bool = False
    """Whether some templates write True, False and None, besides true, false and null."""

    @property
    def words(self) -> dict[str, Any]:
        """Texts of booleans and null."""
        return _JSON_WORDS | _PYTHON_WORDS if self.python_words else _JSON_WORDS

    def between_of(self, kind: Kind) -> str:
        """What stands between the name and a value of the type ``kind``."""
        return dict(self.types).get(kind, self.between)

    def kinds_behind(self, between: str, kinds: Iterable[Kind]) -> frozenset[Kind]:
        """Those of ``kinds`` whose values follow the text ``between``."""
        return frozenset(kind for kind in kinds if self.between_of(kind) == between)

    def betweens(self) -> tuple[str, ...]:
        """All that may stand between a name and its value."""
        return tuple({self.between_of(kind): None for kind in KINDS})

    def can_name(self, name: str) -> bool:
        """Whether a reader finds the end of ``name``."""
        return all((name + each).find(each) == len(name) for each in self.betweens())


@dataclass(frozen=True, slots=True)
class Arguments:
    """The objects valid against ``schema``, written in ``notation``. A part of a composite."""

    kind: ClassVar = "arguments"
    schema: JsonSchema
    notation: Parameters | Literals
    read_by: Any
    """The schema that the reader uses: the function's own, even if ``schema`` was relaxed."""

    @property
    def subject(self) -> str:
        """What its errors are about."""
        return self.schema.subject

    def cache_key(self) -> str:
        relaxed = self.read_by is not self.schema.schema
        read_by = json.dumps(self.read_by, separators=(",", ":")) if relaxed else ""
        return f"arguments:{self.notation!r}:{read_by}:{self.schema.cache_key()}"


def kind_of(text: str, kinds: frozenset[Kind], words: dict[str, Any]) -> Kind:
    """The type of the value ``text`` of an argument that may be of ``kinds``.

    If strings are not among them, the type is that of the JSON it looks like.
    """
    if kinds == {"string"}:
        return "string"
    if text[:1] == "[" and "array" in kinds:
        return "array"
    if text[:1] == "{" and "object" in kinds:
        return "object"
    if text in words:
        kind: Kind = "null" if words[text] is None else "boolean"
        return kind if kind in kinds else "string"
    return "number" if "number" in kinds and NUMBER.fullmatch(text) else "string"


class Readings:
    """Possible types of the members of a schema's objects, by name.

    A superset where the exact types would take too much work: a string is then read as what it
    looks like.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._lonely_ref = isinstance(schema, dict) and ignores_beside_ref(schema)
        self._follows = not any(
            # References below it may be relative to it.
            isinstance(each.get(keyword), str)
            for each in objects_in(schema)
            for keyword in ("$id", "id")
            if each is not schema
        )
        self.declared = frozenset(self._declared())
        """Names in some ``properties``; all other names have the same types."""
        self._known: dict[str | None, frozenset[Kind]] = {}

    def kinds(self, name: str | None) -> frozenset[Kind]:
        """Types of the member ``name``; None: of those that are not ``declared``."""
        name = name if name in self.declared else None
        if name not in self._known:
            self._known[name] = _Walk(self._lonely_ref, self._resolved).of_member(self._root, name)
        return self._known[name]

    def _declared(self) -> Iterator[str]:
        """Names in ``properties`` of all subschemas that are about the object itself."""
        waiting, seen = [self._root], set[int]()
        while waiting:
            node = waiting.pop()
            if not isinstance(node, dict) or id(node) in seen:
                continue
            seen.add(id(node))
            properties = node.get("properties")
            if isinstance(properties, dict):
                yield from (name for name in properties if isinstance(name, str))
            for keyword in ("allOf", "anyOf", "oneOf"):
                below = node.get(keyword)
                waiting += below if isinstance(below, list) else []
            waiting += [node.get(keyword) for keyword in ("if", "then", "else", "not")]
            dependent = node.get("dependentSchemas", node.get("dependencies"))
            waiting += dependent.values() if isinstance(dependent, dict) else []
            waiting.append(self._resolved(node.get("$ref")))

    def _resolved(self, reference: Any) -> Any:
        """The subschema that a plain reference within the schema leads to; None for others."""
        if not self._follows or not isinstance(reference, str) or "%" in reference:
            return None
        if reference != "#" and not reference.startswith("#/"):
            return None
        return at_pointer(self._root, reference[1:])


_Own = Callable[[dict[str, Any]], frozenset[Kind]]
"""From a subschema to the types that its own keywords leave."""


class _Walk:
    """Computes types for one argument, from a limited number of subschemas."""

    def __init__(self, lonely_ref: bool, resolved: Callable[[Any], Any]) -> None:
        self._lonely_ref = lonely_ref
        self._resolved = resolved
        self._left = _MOST_SUBSCHEMAS
        self._open: set[tuple[int, _Own]] = set()

    def of_member(self, node: Any, name: str | None) -> frozenset[Kind]:
        """Types of a member of the objects that ``node`` admits."""

        def own(here: dict[str, Any]) -> frozenset[Kind]:
            properties, patterns = here.get("properties"), here.get("patternProperties", {})
            if name is not None and isinstance(properties, dict) and name in properties:
                return self._of(properties[name], _own_types)
            found = self._of(here.get("additionalProperties", True), _own_types)
            for each in patterns.values() if isinstance(patterns, dict) else ():
                found |= self._of(each, _own_types)
            return found

        return self._of(node, own)

    def _of(self, node: Any, own: _Own) -> frozenset[Kind]:
        """Types by ``own`` of ``node`` and of the subschemas that apply to the same value."""
        key = (id(node), own)
        self._left -= 1
        if not isinstance(node, dict) or key in self._open or self._left < 0:
            return frozenset() if node is False else _ANY
        self._open.add(key)
        try:
            if self._lonely_ref and "$ref" in node:
                return self._of(self._resolved(node["$ref"]), own)
            found = own(node)
            if "$ref" in node:
                found &= self._of(self._resolved(node["$ref"]), own)
            for each in _listed(node, "allOf"):
                found &= self._of(each, own)
            for keyword in ("anyOf", "oneOf"):
                if ways := _listed(node, keyword):
                    found &= frozenset().union(*(self._of(each, own) for each in ways))
            return found
        finally:
            self._open.discard(key)


def _own_types(node: dict[str, Any]) -> frozenset[Kind]:
    """Types that ``type``, ``const`` and ``enum`` of a subschema leave."""
    found = _ANY
    types = node.get("type")
    if types is not None:
        names = [types] if isinstance(types, str) else types if isinstance(types, list) else KINDS
        found &= {"number" if name == "integer" else name for name in names}
    if "const" in node:
        found &= {json_kind(node["const"])}
    if isinstance(node.get("enum"), list):
        found &= set(map(json_kind, node["enum"]))
    return found


def json_kind(value: Any) -> Kind:
    """The type of a parsed JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _listed(node: dict[str, Any], keyword: str) -> list[Any]:
    value = node.get(keyword)
    return value if isinstance(value, list) else []


def ignores_beside_ref(schema: Mapping[str, Any]) -> bool:
    """Whether its draft ignores keywords beside ``$ref`` (draft 7, section 8.3)."""
    dialect = schema.get("$schema")
    return isinstance(dialect, str) and _LONELY_REF.search(dialect) is not None


def at_pointer(value: Any, pointer: str) -> Any:
    """The member of ``value`` that a JSON Pointer (RFC 6901) leads to; None if there is none."""
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and token.isdecimal() and int(token[:9]) < len(value):
            value = value[int(token[:9])]
        else:
            value = value.get(token) if isinstance(value, dict) else None
    return value


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a parsed JSON value, itself included."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield here
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here
