"""A JSON Schema as the prompt shows it to the model.

Keywords that guide the content stay: descriptions, types, lists of values, lengths and bounds (a
text that the mask cuts off is worse than one that was written to its length). Keywords that the
mask enforces by itself go: required members, and subschemas that exclude one another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.core.arguments import objects_in

MOST_CHARACTERS = 16_384
"""Maximum characters of a schema that is shown without a request for it: some 4,000 tokens."""

_ANSWER = "Answer with JSON that follows this JSON Schema, and with nothing else:\n"
_ANSWER_OR_CALL = (
    "Unless you call a function, answer with JSON that follows this JSON Schema, and with nothing "
    "else:\n"
)

_LEFT_OUT = frozenset(
    [
        *("$schema", "$id", "$comment", "$vocabulary", "required", "uniqueItems"),
        *("unevaluatedProperties", "unevaluatedItems", "propertyNames", "minProperties"),
        *("dependentRequired", "dependentSchemas", "dependencies", "not", "if", "then", "else"),
    ]
)
_ONE = frozenset(["items", "additionalItems", "additionalProperties", "contains"])
_LISTS = frozenset(["anyOf", "oneOf", "allOf", "prefixItems", "items"])
_MAPS = frozenset(["properties", "patternProperties", "$defs", "definitions"])
_STORES = ("$defs", "definitions")
_BOUNDS = frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
_SAFE_INTEGER = 2**53 - 1
"""Bounds from here on only mean "an integer" (zod's ``int()``)."""
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class SchemaPrompt:
    """The answer's schema as the prompt shows it."""

    schema: str
    """As JSON; "": it was left out, as it is too long."""
    asked: bool = False
    """Whether the request asked for it; otherwise it is dropped if there is no room."""

    def instructions(self, *, may_call: bool) -> str:
        """The text for the prompt; ``may_call``: an answer may call functions instead."""
        return (_ANSWER_OR_CALL if may_call else _ANSWER) + self.schema


def schema_text(schema: Any, name: str | None = None, description: str | None = None) -> str:
    """``kept_schema`` as JSON; "" where it is empty."""
    kept = kept_schema(schema, name, description)
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")) if kept else ""


def kept_schema(
    schema: Any, name: str | None = None, description: str | None = None
) -> dict[str, Any]:
    """``schema`` without what the prompt leaves out; empty where nothing is left.

    ``name`` and ``description`` are those of the response format. Cost: O(schema).
    """
    kept = _compact(schema, name, 0)
    if not isinstance(kept, dict) or not kept:
        return {}
    if description and "description" not in kept:
        kept = {"description": description, **kept}
    if name and "title" not in kept:
        kept = {"title": name, **kept}
    return _pruned(kept)


def _compact(schema: Any, key: str | None, depth: int) -> Any:
    """A subschema without the omitted keywords; ``key``: the member that it describes."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return schema
    kept: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _LEFT_OUT or keyword.startswith("x-") or _is_needless(keyword, value, key):
            continue
        if keyword in _MAPS and isinstance(value, Mapping):
            names = keyword not in _STORES
            kept[keyword] = {
                n: _compact(v, n if names else None, depth + 1) for n, v in value.items()
            }
        elif keyword in _LISTS and isinstance(value, list):
            kept[keyword] = [_compact(each, None, depth + 1) for each in value]
        else:
            kept[keyword] = _compact(value, None, depth + 1) if keyword in _ONE else value
    return kept


def _is_needless(keyword: str, value: Any, key: str | None) -> bool:
    if keyword == "title":
        return key is not None and _letters(value) == _letters(key)
    if keyword in _BOUNDS:
        return isinstance(value, bool) or (
            isinstance(value, int | float) and abs(value) >= _SAFE_INTEGER
        )
    return keyword in ("additionalProperties", "additionalItems") and isinstance(value, bool)


def _letters(text: Any) -> str:
    return re.sub(r"\W|_", "", text).lower() if isinstance(text, str) else ""


def _pruned(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` without unused definitions."""
    stores = [store for store in _STORES if isinstance(schema.get(store), dict)]
    waiting: list[Any] = [{name: each for name, each in schema.items() if name not in stores}]
    used: set[tuple[str, str]] = set()
    while waiting:
        for reference in _references(waiting.pop()):
            path = reference.split("/")
            if reference == "#":
                continue
            if path[0] != "#" or len(path) < 3 or path[1] not in stores:
                return schema  # by an anchor, or to a place that may be left out
            place = path[1], path[2].replace("~1", "/").replace("~0", "~")
            if place not in used:
                used.add(place)
                waiting.append(schema[place[0]].get(place[1]))
    for store in stores:
        left = {name: each for name, each in schema[store].items() if (store, name) in used}
        schema = {**schema, store: left}
        if not left:
            del schema[store]
    return schema


def _references(value: Any) -> Iterator[str]:
    for here in objects_in(value):
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(here.get(keyword), str):
                yield here[keyword]
