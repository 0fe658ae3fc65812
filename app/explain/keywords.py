"""What became of every keyword of a schema, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from app.constraint.formats.strict import known_formats
from app.constraint.limits import Limits
from app.constraint.schema.document import Document, escape_token, subschemas
from app.core.errors import ConstraintError, UnsupportedSchema

Fate = Literal["enforced", "annotation", "not enforced", "no effect", "refused"]


@dataclass(frozen=True, slots=True)
class KeywordUse:
    """One keyword of one subschema."""

    keyword: str
    pointer: str
    """To the keyword itself (RFC 6901)."""
    fate: Fate
    note: str


def keyword_uses(schema: Any, refusal: UnsupportedSchema | None = None) -> list[KeywordUse]:
    """Every keyword of ``schema`` in the order it is written.

    ``refusal`` is what compiling it raised. Subschemas that nothing refers to count as well.
    """
    lonely_ref = _has_lonely_ref(schema)
    return [_use(*found, refusal, lonely_ref) for found in _occurrences(schema)]


def _has_lonely_ref(schema: Any) -> bool:
    """Whether the schema's draft ignores what stands beside ``$ref``."""
    try:
        return Document(schema, Limits()).dialect.lonely_ref
    except ConstraintError:  # it is refused, and said where
        return False


def _use(
    keyword: str,
    value: Any,
    pointer: str,
    schema: dict[str, Any],
    refusal: UnsupportedSchema | None,
    lonely_ref: bool,
) -> KeywordUse:
    if refusal is not None and (keyword, pointer) == (refusal.keyword, refusal.pointer):
        return KeywordUse(keyword, pointer, "refused", refusal.reason or "cannot be enforced")
    if keyword in _ANNOTATIONS:
        return KeywordUse(keyword, pointer, "annotation", "ignored knowingly")
    if keyword not in _ENFORCED:
        return KeywordUse(keyword, pointer, "annotation", "no keyword of JSON Schema; ignored")
    if lonely_ref and "$ref" in schema and keyword not in ("$ref", *_DEFINITIONS):
        return KeywordUse(keyword, pointer, "no effect", "beside $ref, which stands alone")
    if keyword == "format" and str(value) not in known_formats():
        return KeywordUse(keyword, pointer, "not enforced", f"unknown format {value!r}")
    applies, note = _ENFORCED[keyword]
    names = schema.get("type")
    admitted = [names] if isinstance(names, str) else names
    if applies and isinstance(admitted, list) and not set(applies).intersection(admitted):
        return KeywordUse(keyword, pointer, "no effect", f"applies to {applies[0]}s alone")
    missing = _missing(keyword, schema)
    if missing:
        return KeywordUse(keyword, pointer, "no effect", f"there is no {missing} beside it")
    return KeywordUse(keyword, pointer, "enforced", note)


def _missing(keyword: str, schema: dict[str, Any]) -> str:
    """The keyword without which this one says nothing, if it is not there."""
    if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
        return "items that is a list"
    needed = _NEEDED.get(keyword, keyword)
    return "" if needed in schema else needed


def _occurrences(root: Any) -> Iterator[tuple[str, Any, str, dict[str, Any]]]:
    """Keyword, value, pointer and subschema of every use; no recursion."""
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        pointer, schema = stack.pop()
        if not isinstance(schema, dict):
            continue
        for keyword, value in schema.items():
            yield str(keyword), value, f"{pointer}/{escape_token(str(keyword))}", schema
        below = [
            ("/".join([pointer, *(escape_token(str(token)) for token in tokens)]), child)
            for tokens, child in subschemas(schema)
            if tokens[0] not in _ANNOTATIONS
        ]
        stack.extend(reversed(below))


_ANNOTATIONS = frozenset(
    [
        *("$schema", "$comment", "$vocabulary", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType"),
        "contentSchema",
    ]
)

_DEFINITIONS = ("$defs", "definitions")
"""What references find also where nothing else counts."""

_NEEDED = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}

_NUMBERS = ("number", "integer")
_STRINGS = ("string",)
_ARRAYS = ("array",)
_OBJECTS = ("object",)

_ENFORCED: dict[str, tuple[tuple[str, ...], str]] = {
    "type": ((), "the first byte of a value"),
    "enum": ((), "a tree of the texts"),
    "const": ((), "one text: a leap"),
    "minimum": (_NUMBERS, "digits compared from the left"),
    "maximum": (_NUMBERS, "digits compared from the left"),
    "exclusiveMinimum": (_NUMBERS, "digits compared from the left"),
    "exclusiveMaximum": (_NUMBERS, "digits compared from the left"),
    "multipleOf": (_NUMBERS, "remainders of decimals as they are written, a state each"),
    "minLength": (_STRINGS, "counted characters"),
    "maxLength": (_STRINGS, "counted characters"),
    "pattern": (_STRINGS, "the pattern's own automaton"),
    "format": (_STRINGS, "asserted: a pattern from the format's RFC"),
    "items": (_ARRAYS, "every item, or those after the first ones"),
    "prefixItems": (_ARRAYS, "the first items, each by itself"),
    "additionalItems": (_ARRAYS, "items after the first ones"),
    "unevaluatedItems": (_ARRAYS, "items that nothing else evaluates, by alternative"),
    "contains": (_ARRAYS, "counted items that satisfy it"),
    "minContains": (_ARRAYS, "counted items that satisfy contains"),
    "maxContains": (_ARRAYS, "counted items that satisfy contains"),
    "minItems": (_ARRAYS, "counted items"),
    "maxItems": (_ARRAYS, "counted items"),
    "uniqueItems": (_ARRAYS, "items of a finite set, each at most once"),
    "properties": (_OBJECTS, "keys in this order: leaps"),
    "patternProperties": (_OBJECTS, "further keys in classes by pattern"),
    "additionalProperties": (_OBJECTS, "keys that are not named"),
    "unevaluatedProperties": (_OBJECTS, "keys that nothing else evaluates, by alternative"),
    "propertyNames": (_OBJECTS, "a language of keys"),
    "required": (_OBJECTS, "keys that cannot be passed over"),
    "minProperties": (_OBJECTS, "counted members, one at most whose name is left open"),
    "maxProperties": (_OBJECTS, "counted members"),
    "dependentRequired": (_OBJECTS, "alternatives by the keys that are there"),
    "dependentSchemas": (_OBJECTS, "alternatives by the keys that are there"),
    "dependencies": (_OBJECTS, "alternatives by the keys that are there"),
    "allOf": ((), "intersection"),
    "anyOf": ((), "union"),
    "oneOf": ((), "alternatives, each without those that it overlaps"),
    "not": ((), "alternatives that are the negation of its keywords"),
    "if": ((), "two alternatives"),
    "then": ((), "the alternative where if holds"),
    "else": ((), "the alternative where if does not"),
    "$ref": ((), "what it refers to; a rule where it is recursive"),
    "$dynamicRef": ((), "what it refers to"),
    "$recursiveRef": ((), "what it refers to"),
    "$defs": ((), "definitions, where they are referred to"),
    "definitions": ((), "definitions, where they are referred to"),
    "$id": ((), "a name for references"),
    "id": ((), "a name for references"),
    "$anchor": ((), "a name for references"),
    "$dynamicAnchor": ((), "a name for references"),
    "$recursiveAnchor": ((), "a name for references"),
}
"""Keywords that assert something or name something: the types they apply to, and how."""
