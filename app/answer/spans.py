"""Positions in the prompt of the answer's strings whose schema has ``x-verbatim``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.answer.pieces import (
    CallArguments,
    CallStart,
    Content,
    Piece,
    PromptSpan,
    pointer_below,
)
from app.core.arguments import at_pointer, objects_in
from app.core.verbatim import Document, Passage, Source, passages_of

KEYWORD = "x-verbatim"

_ALSO = ("allOf", "anyOf", "oneOf")
_ALSO_ONE = ("if", "then", "else")
_MOST_NODES = 2_000
"""Maximum subschemas that are examined for one value."""


@dataclass(frozen=True, slots=True)
class Quotable:
    """The texts of a prompt that values were bound to."""

    passages: Sequence[Passage]
    documents: Mapping[Source, Document]

    def find(self, value: str, sources: Iterable[Source]) -> tuple[str, int, int] | None:
        """Name of the first part that contains ``value``, with start and end in characters."""
        for source in sources:
            document = self.documents.get(source)
            found = None if document is None else document.find(value)
            if found is not None:
                return passages_of(source, self.passages)[found.text].name, found.start, found.end
        return None


class SpanReader:
    """Collects the values of one choice of a request as it streams, and looks them up."""

    def __init__(self, content: Any, tools: Mapping[str, Any], texts: Quotable) -> None:
        """``content``: schema of the content, or None; ``tools``: schemas of the arguments, by
        function name."""
        self._content = content
        self._tools = tools
        self._texts = texts
        self._values: dict[int | None, tuple[Any, list[str]]] = {}
        """Schema and parts of the text, by call; None: the content."""

    def read(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            match piece:
                case Content() if self._content is not None:
                    self._values.setdefault(None, (self._content, []))[1].append(piece.text)
                case CallStart(index=index, name=name) if name in self._tools:
                    self._values[index] = (self._tools[name], [])
                case CallArguments(index=index) if index in self._values:
                    self._values[index][1].append(piece.text)

    def finish(self) -> list[PromptSpan]:
        """The spans in order of the text; none in incomplete JSON. Costs O(answer)."""
        return [
            PromptSpan(pointer, *found, call=call)
            for call, (schema, parts) in self._values.items()
            for pointer, value, sources in _strings(schema, "".join(parts))
            if (found := self._texts.find(value, sources)) is not None
        ]


def _strings(schema: Any, text: str) -> Iterator[tuple[str, str, list[Source]]]:
    """The strings of a JSON text with ``x-verbatim``: pointer, value, and sources."""
    try:
        root = json.loads(text)
    except ValueError:
        return
    lookup = _Lookup(schema)
    waiting: list[tuple[str, Any, list[Any]]] = [("", root, lookup.all_of([schema]))]
    while waiting:
        pointer, value, nodes = waiting.pop()
        if isinstance(value, str):
            asked = [Source.asked(node.get(KEYWORD, False)) for node in nodes]
            if sources := [source for source in asked if source is not None]:
                yield pointer, value, sources
        elif nodes and isinstance(value, dict | list):
            below = [
                (pointer_below(pointer, key), member, lookup.below(nodes, key))
                for key, member in (value.items() if isinstance(value, dict) else enumerate(value))
            ]
            waiting.extend(reversed(below))


class _Lookup:
    """The subschemas of one schema that may apply to a value."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._below: dict[tuple[tuple[int, ...], str | int], list[Any]] = {}
        self._named: dict[str, Any] | None = None

    def all_of(self, nodes: Iterable[Any]) -> list[Any]:
        """``nodes``, and the subschemas that they refer to or combine."""
        found: list[Any] = []
        waiting, seen = [*nodes], set[int]()
        while waiting and len(found) < _MOST_NODES:
            node = waiting.pop()
            if not isinstance(node, dict) or id(node) in seen:
                continue
            seen.add(id(node))
            found.append(node)
            for keyword in _ALSO:
                waiting.extend(node.get(keyword, ()))
            waiting.extend(node[keyword] for keyword in _ALSO_ONE if keyword in node)
            waiting.extend(node.get("dependentSchemas", {}).values())
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(node.get(keyword), str):
                    waiting.append(self._resolved(node[keyword]))
        return found

    def below(self, nodes: Sequence[Any], key: str | int) -> list[Any]:
        """Subschemas for the member ``key`` of a value that ``nodes`` apply to."""
        lists = [node.get(name) for node in nodes for name in ("prefixItems", "items")]
        # Items that may each have a subschema of their own.
        prefix = max((len(each) for each in lists if isinstance(each, list)), default=0)
        name = tuple(map(id, nodes)), key if isinstance(key, str) or key < prefix else -1
        known = self._below.get(name)
        if known is None:
            children = [child for node in nodes for child in _children(node, key)]
            known = self._below[name] = self.all_of(children)
        return known

    def _resolved(self, reference: str) -> Any:
        """The target of a reference in the schema; None if simple lookup does not find it."""
        base, _, fragment = reference.partition("#")
        if not fragment:
            return self._names().get(base) if base else self._root
        if not fragment.startswith("/"):
            return self._names().get(fragment)
        return at_pointer(self._names().get(base) if base else self._root, fragment)

    def _names(self) -> dict[str, Any]:
        """Subschemas by their anchors and identifiers."""
        if self._named is None:
            self._named = {}
            for node in objects_in(self._root):
                for keyword in ("$anchor", "$dynamicAnchor", "$id", "id"):
                    if isinstance(node.get(keyword), str):
                        self._named.setdefault(node[keyword].lstrip("#"), node)
        return self._named


def _children(node: dict[str, Any], key: str | int) -> Iterator[Any]:
    """Subschemas of ``node`` that may apply to the member ``key``."""
    if isinstance(key, str):
        yield node.get("properties", {}).get(key)
        yield from node.get("patternProperties", {}).values()  # whose patterns are not run
        yield node.get("additionalProperties")
        yield node.get("unevaluatedProperties")
        return
    for name in ("prefixItems", "items"):
        listed = node.get(name)
        if isinstance(listed, list) and key < len(listed):
            yield listed[key]
        elif isinstance(listed, dict):
            yield listed
    for name in ("additionalItems", "unevaluatedItems", "contains"):
        yield node.get(name)
