"""How every keyword of a schema is treated: enforced, ignored or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from app.constraint.formats import known_formats
from app.constraint.schema.document import escape_token, lonely_ref, subschemas
from app.core.errors import UnsupportedSchema

Fate = Literal["enforced", "annotation", "not enforced", "no effect", "refused"]


@dataclass(frozen=True, slots=True)
class KeywordUse:
    """One keyword of one subschema."""

    keyword: str
    pointer: str
    """JSON Pointer to the keyword itself (RFC 6901)."""
    fate: Fate
    note: str


def keyword_uses(schema: Any, refusal: UnsupportedSchema | None = None) -> list[KeywordUse]:
    """Every keyword of ``schema`` in the order it is written.

    ``refusal`` is what compiling it raised. Subschemas that nothing refers to count as well.
    """
    lonely, uses = lonely_ref(schema), []
    for keyword, pointer, beside in _occurrences(schema):
        if refusal is not None and (keyword, pointer) == (refusal.keyword, refusal.pointer):
            became: tuple[Fate, str] = "refused", refusal.reason or "cannot be enforced"
        else:
            became = _fate(keyword, beside, lonely)
        uses.append(KeywordUse(keyword, pointer, *became))
    return uses


def _fate(keyword: str, schema: dict[str, Any], lonely_ref: bool) -> tuple[Fate, str]:
    """``lonely_ref``: the schema's draft ignores what stands beside ``$ref``."""
    if keyword in _ANNOTATIONS:
        return "annotation", "not a constraint; ignored"
    if keyword not in _ENFORCED:
        return "annotation", "not a JSON Schema keyword; ignored"
    if lonely_ref and "$ref" in schema and keyword not in ("$ref", *_DEFINITIONS):
        return "no effect", "ignored beside $ref in this draft"
    if keyword == "format" and str(schema["format"]) not in known_formats():
        return "not enforced", f"unknown format {schema['format']!r}"
    applies, note = _ENFORCED[keyword]
    names = schema.get("type")
    admitted = [names] if isinstance(names, str) else names
    if applies and isinstance(admitted, list) and not set(applies).intersection(admitted):
        return "no effect", f"applies to {applies[0]}s alone"
    if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
        return "no effect", "has no effect unless items is a list"
    needed = _NEEDED.get(keyword, keyword)
    if needed not in schema:
        return "no effect", f"has no effect without {needed}"
    return "enforced", note


def _occurrences(root: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Keyword, pointer and subschema of every use; no recursion."""
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        pointer, schema = stack.pop()
        if not isinstance(schema, dict):
            continue
        for keyword in schema:
            yield str(keyword), f"{pointer}/{escape_token(str(keyword))}", schema
        below = [
            ("/".join([pointer, *(escape_token(str(token)) for token in tokens)]), child)
            for tokens, child in subschemas(schema)
            if tokens[0] not in _ANNOTATIONS
        ]
        stack.extend(reversed(below))


_ANNOTATIONS = {
    *("$schema", "$comment", "$vocabulary", "title", "description", "default", "examples"),
    *("deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType"),
    "contentSchema",
}

_DEFINITIONS = ("$defs", "definitions")
"""Keywords that references reach even where a draft ignores them."""

_NEEDED = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}

_NUMBERS = ("number", "integer")
_STRINGS = ("string",)
_ARRAYS = ("array",)
_OBJECTS = ("object",)

_ENFORCED: dict[str, tuple[tuple[str, ...], str]] = {
    keyword: (applies, how)
    for keywords, applies, how in (
        ("type", (), "the first byte of a value"),
        ("enum", (), "a trie of the values"),
        ("const", (), "one fixed text: a leap"),
        ("x-choice", (), "whole values sampled by their probabilities"),
        (
            "minimum maximum exclusiveMinimum exclusiveMaximum",
            _NUMBERS,
            "digits compared from the left",
        ),
        ("multipleOf", _NUMBERS, "remainders of decimals as they are written"),
        ("minLength maxLength", _STRINGS, "counted characters"),
        ("pattern", _STRINGS, "the pattern's own automaton"),
        ("x-grammar", _STRINGS, "the rules of its grammar, spelled as JSON"),
        ("x-verbatim", _STRINGS, "a quote from the prompt, bound when the request arrives"),
        ("format", _STRINGS, "asserted: a pattern from the format's RFC"),
        ("items", _ARRAYS, "every item, or those after the first ones"),
        ("prefixItems", _ARRAYS, "the first items, each by itself"),
        ("additionalItems", _ARRAYS, "items after the first ones"),
        ("unevaluatedItems", _ARRAYS, "items that nothing else evaluates, by alternative"),
        ("contains", _ARRAYS, "counted items that satisfy it"),
        ("minContains maxContains", _ARRAYS, "counted items that satisfy contains"),
        ("minItems maxItems", _ARRAYS, "counted items"),
        ("uniqueItems", _ARRAYS, "distinct items, each in one spelling"),
        ("properties", _OBJECTS, "keys in this order: leaps"),
        ("patternProperties", _OBJECTS, "additional keys, by the patterns they match"),
        ("additionalProperties", _OBJECTS, "additional keys"),
        ("unevaluatedProperties", _OBJECTS, "keys that nothing else evaluates, by alternative"),
        ("propertyNames", _OBJECTS, "an automaton of the allowed keys"),
        ("required", _OBJECTS, "required keys"),
        ("minProperties", _OBJECTS, "counted members with distinct names"),
        ("maxProperties", _OBJECTS, "counted members"),
        (
            "dependentRequired dependentSchemas dependencies",
            _OBJECTS,
            "alternatives by the keys that are present",
        ),
        ("allOf", (), "intersection"),
        ("anyOf", (), "union"),
        ("oneOf", (), "alternatives, without values that fit several"),
        ("not", (), "alternatives that are the negation of its keywords"),
        ("if", (), "two alternatives"),
        ("then", (), "the alternative where if holds"),
        ("else", (), "the alternative where if does not"),
        ("$ref", (), "the schema it refers to; a rule if recursive"),
        ("$dynamicRef $recursiveRef", (), "the schema it refers to"),
        ("$defs definitions", (), "definitions, used where $ref names them"),
        ("$id id $anchor $dynamicAnchor $recursiveAnchor", (), "the target of a reference"),
    )
    for keyword in keywords.split()
}
"""Keywords that assert something or name something: the types they apply to, and how."""
