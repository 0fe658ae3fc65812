"""Relaxes specifications that allow it and cannot be enforced as they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from app.constraint.limits import Limits
from app.constraint.regex.syntax import PatternError
from app.constraint.schema.contradiction import Trials, find_contradiction
from app.constraint.schema.document import Document, Node
from app.constraint.schema.edits import (
    OURS,
    Edit,
    at_fault,
    edges,
    edited,
    moves,
    pointer_to,
    renamed,
    widening,
)
from app.constraint.schema.keywords import FOLLOWED
from app.core.arguments import Arguments, objects_in
from app.core.composite import with_schemas
from app.core.constraint import ConstraintSpec, Relaxation
from app.core.errors import (
    ConstraintError,
    ConstraintTooComplex,
    InvalidSchema,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import JsonSchema

Leaf = JsonSchema | Arguments

_MOST_EDITS = 48
"""Maximum places of one schema that are relaxed singly; after them the whole schema is."""
_SECONDS = 2.0
"""Seconds of processor time from the first error, after which the whole schema is relaxed: each
try costs a compilation."""

_ALL: Edit = ("", "")
_DIALECT: Edit = ("", "$schema")


def relaxed(
    spec: ConstraintSpec,
    limits: Limits,
    compile: Callable[[Leaf], object],
    failed: ConstraintError | None = None,
) -> tuple[ConstraintSpec, tuple[Relaxation, ...]]:
    """``spec`` with each schema that may be relaxed, relaxed until ``compile`` accepts it alone.

    ``failed``: the error for ``spec`` as it is. Raises the error of ``compile`` for a schema in
    which nothing is left to relax.
    """
    found: list[Relaxation] = []
    known: dict[str, Leaf] = {}

    def of(leaf: Leaf) -> Leaf:
        if not _schema_of(leaf).relax:
            return leaf
        key = leaf.cache_key()
        if key not in known:
            subject = _schema_of(leaf).subject
            own = spec is leaf or (subject and failed is not None and failed.subject == subject)
            first = failed if own else None
            known[key], relaxations = _relaxed_leaf(leaf, limits, compile, first)
            found.extend(relaxations)
        return known[key]

    return with_schemas(spec, of, Leaf), tuple(found)


def as_sent(notes: Sequence[Relaxation], edits: Sequence[Relaxation]) -> tuple[Relaxation, ...]:
    """``notes`` about schemas relaxed by ``edits``, with pointers into the schemas as sent."""

    def pointer(note: Relaxation) -> str:
        moving = [each for each in edits if each.moves and each.subject == note.subject]
        return renamed(note.pointer, [(each.place, each.keyword) for each in moving])

    return tuple([replace(note, pointer=pointer(note)) for note in notes])


def may_be_relaxed(spec: ConstraintSpec) -> bool:
    """Whether some schema of ``spec`` may be relaxed."""
    return any(schema.relax for schema in _schemas(spec))


def explained(
    error: UnsatisfiableSchema, spec: ConstraintSpec, limits: Limits
) -> UnsatisfiableSchema:
    """``error`` with the place and the keywords that are at fault, where they are found."""
    if error.pointer is None:
        for schema in _schemas(spec):
            # one that may be relaxed was searched before
            if schema.subject == error.subject and not schema.relax:
                clash = find_contradiction(schema.schema, limits, close=schema.close_objects)
                if clash is not None:
                    return clash.error.about(schema.subject)
    return error


def _schema_of(leaf: Leaf) -> JsonSchema:
    return leaf.schema if isinstance(leaf, Arguments) else leaf


def _relaxed_leaf(
    leaf: Leaf, limits: Limits, compile: Callable[[Leaf], object], failed: ConstraintError | None
) -> tuple[Leaf, list[Relaxation]]:
    """Relax one leaf. ``failed``: the first error of ``compile``, if known."""
    spec = _schema_of(leaf)
    found: list[Relaxation] = []
    moving: list[Edit] = []
    schema = spec.schema
    until: float | None = None
    while True:
        changed = replace(spec, schema=schema)
        now = replace(leaf, schema=changed) if isinstance(leaf, Arguments) else changed
        try:
            if failed is None:
                compile(now)
                return now, found
            refused, failed = failed, None
        except ConstraintError as error:
            refused = error
        until = until or time.process_time() + _SECONDS
        hurried = len(found) >= _MOST_EDITS or time.process_time() > until
        if isinstance(refused, UnsatisfiableSchema):
            clash = find_contradiction(schema, limits, close=spec.close_objects)
            refused = clash.error if clash else refused
            ways = [[edit] for edit in clash.edits] if clash else []
        else:
            first = at_fault(schema, refused) if _may_be_relaxed(refused, bool(found)) else None
            ways = [[edit] for edit in _upward(first)] if first is not None else []
            if isinstance(refused, ConstraintTooComplex) and ways and not hurried:
                ways.insert(0, find_costly(schema, ways[0][0][0], limits, close=spec.close_objects))
        if hurried and ways:
            ways = [[_ALL]]
        more = next(filter(None, (_widened(schema, way, limits) for way in ways)), None)
        if more is None:
            raise refused if refused.subject else refused.about(spec.subject)
        before = tuple(moving)
        for edit in more:
            pointer = renamed(pointer_to(edit), before)
            reason, moved = _reason(refused, pointer, before), moves(schema, edit)
            found.append(Relaxation(pointer, edit[1], reason, edit[0], spec.subject, moves=moved))
            schema = edited(schema, edit)
            moving += [edit] if moved else []


def _widened(schema: Any, way: list[Edit], limits: Limits) -> list[Edit]:
    """``way``, or the edits to make instead so that more is admitted; empty if not allowed."""
    edits: dict[Edit, None] = {}
    try:
        for edit in way:
            whole = edit in (_ALL, _DIALECT)
            edits |= dict.fromkeys([edit] if whole else widening(schema, edit, limits))
        after = edited(schema, *edits)
    except (ConstraintError, KeyError, IndexError, TypeError):
        return []  # the schema cannot be walked, or the place is in the schema of a draft
    return [] if after == schema or _count_ours(after) != _count_ours(schema) else list(edits)


def _may_be_relaxed(error: ConstraintError, dangling: bool) -> bool:
    """Whether ``error`` allows relaxing: not a mistake, except patterns of another dialect.

    ``dangling``: references may point to dropped parts.
    """
    if isinstance(error, InvalidSchema):
        lost = dangling and error.pointer.endswith("/$ref")
        return lost or isinstance(error.__cause__, PatternError)
    return isinstance(error, UnsupportedSchema | ConstraintTooComplex)


def _upward(edit: Edit) -> Iterator[Edit]:
    """``edit``, then edits of each enclosing place, up to the whole schema."""
    place, keyword = edit
    if keyword:
        yield edit
    while place:
        yield place, ""
        place = place.rpartition("/")[0]
    yield _ALL


def _reason(error: ConstraintError, pointer: str, moving: Sequence[Edit]) -> str:
    """The reason of a relaxation, with its place if that is not ``pointer``; see ``renamed``."""
    if pointer == "/$schema":
        return "$schema names an unknown draft; the schema is read as draft 2020-12"
    at = getattr(error, "pointer", None)
    why = getattr(error, "reason", "") or str(error)
    if isinstance(error, UnsatisfiableSchema):
        return why  # it says where
    at = None if at is None else renamed(at, moving)
    return why if at is None or at == pointer else f"{why} (at {at or 'the root'})"


def _schemas(spec: ConstraintSpec) -> Iterator[JsonSchema]:
    """All JSON Schemas in a specification, at any depth."""
    waiting: list[Any] = [spec]
    while waiting:
        part = waiting.pop()
        if isinstance(part, JsonSchema):
            yield part
        elif isinstance(part, tuple):
            waiting.extend(part)
        elif is_dataclass(part):
            waiting.extend(getattr(part, field.name) for field in fields(part))


def _count_ours(value: Any) -> int:
    """Number of our extension keywords in a schema (and of members with such names)."""
    return sum(len(OURS & each.keys()) for each in objects_in(value))


_CHEAP = frozenset(
    ["type", "properties", "required", "additionalProperties", "items", "prefixItems", "const"]
) | frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
"""Keywords that cost no more than their subschemas do."""
_PASSED = frozenset(["$ref", "allOf"])
_SAME_VALUE = frozenset(["anyOf", "oneOf", "not", "if", "then", "else"])
_PARTS = {"if": ("if", "then", "else")}
"""Keywords whose subschemas are dropped together with a keyword, if not only its own."""


def find_costly(schema: Any, place: str, limits: Limits, *, close: bool) -> list[Edit]:
    """Keywords, inner ones first, without which the subschema at ``place`` is not too complex.

    Keywords about the same value are dropped together, then put back by halves while the rest is
    well within ``limits``; for those that stay dropped, the keywords inside them are tried instead.
    Empty if that does not help, or is not found in the steps of one search.
    """
    try:
        return _Search(schema, place, limits, close=close).run()
    except ConstraintError:
        return []


class _Search:
    def __init__(self, schema: Any, place: str, limits: Limits, *, close: bool) -> None:
        self._schema = schema
        self._place = place
        self._document = Document(schema, limits)
        self._trials = Trials(limits, close=close)
        self._dropped: list[Edit] = []

    def run(self) -> list[Edit]:
        start = self._document.find(self._place)
        waiting = list(self._sites([start])) if start is not None else []
        if not waiting or not self._takes(waiting):
            return []
        while waiting:
            whole = self._needed(waiting)
            waiting = []
            for edit in whole:
                inner = list(self._inside(edit))
                others = [each for each in self._dropped if each != edit]
                if inner and self._takes([*others, *inner]):
                    waiting += inner
        return sorted(self._dropped, key=lambda edit: (-len(edit[0]), edit))

    def _takes(self, dropped: list[Edit]) -> bool:
        """Whether the schema without ``dropped`` is not too complex; if so, keep ``dropped``."""
        if self._trials.left <= 0:  # a copy of the schema takes time, too
            return False
        left = edited(self._schema, *sorted(dropped, key=lambda edit: (-len(edit[0]), edit)))
        if self._trials.run(left, self._place) not in ("some", "empty"):
            return False
        self._dropped = dropped
        return True

    def _needed(self, sites: list[Edit]) -> list[Edit]:
        """Those of ``sites`` that have to be dropped; the others are put back."""
        waiting = [sites]
        while waiting:
            again = waiting.pop()
            put_back = self._takes([edit for edit in self._dropped if edit not in again])
            if not put_back and len(again) > 1:
                waiting += [again[: len(again) // 2], again[len(again) // 2 :]]
        return [edit for edit in sites if edit in self._dropped]

    def _sites(self, waiting: list[Node]) -> Iterator[Edit]:
        """Keywords that may be dropped, of subschemas and of all that hold together with them."""
        passed = {node.pointer for node in waiting}
        while waiting:
            node = waiting.pop()
            if not isinstance(node.schema, dict):
                continue
            for keyword in node.schema:
                if keyword in FOLLOWED and keyword not in _CHEAP | _PASSED:
                    yield node.pointer, keyword
            for child, keyword, _ in edges(node, self._document):
                holds = keyword == "$ref" or child.pointer.startswith(f"{node.pointer}/allOf/")
                if holds and child.pointer not in passed:
                    passed.add(child.pointer)
                    waiting.append(child)

    def _inside(self, edit: Edit) -> Iterator[Edit]:
        """What may be dropped in the subschemas of one keyword."""
        place, keyword = edit
        node = self._document.find(place)
        if node is None or keyword not in _SAME_VALUE:
            return
        parts = tuple(f"{place}/{part}" for part in _PARTS.get(keyword, (keyword,)))
        below = [child for child, _, _ in edges(node, self._document)]
        yield from self._sites(
            [n for n in below if any((n.pointer + "/").startswith(p + "/") for p in parts)]
        )
