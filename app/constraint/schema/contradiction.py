"""Explains unsatisfiable schemas: the smallest empty subschema, and the keywords that clash there.

Keywords, members and items are taken out, many at a time, as long as the rest is still empty (delta
debugging: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002). Each
part that is left is needed for the contradiction. Only schemas that are refused anyway come here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from app.constraint.json.text import JsonText, json_pool
from app.constraint.language.derivatives import measured
from app.constraint.language.expressions import INFINITE
from app.constraint.limits import Limits
from app.constraint.schema.document import (
    SUBSCHEMA,
    SUBSCHEMA_LISTS,
    SUBSCHEMA_MAPS,
    Document,
    Node,
)
from app.constraint.schema.edits import Edit, edges, edited, pointer_to, positive_places
from app.constraint.schema.keywords import FOLLOWED
from app.constraint.schema.lowering.builder import SchemaBuilder
from app.core.errors import ConstraintError, UnsatisfiableSchema

_MOST_NAMED = 4
"""Maximum keywords in one message."""
_LONGEST = 160
"""Maximum characters of a schema in a message."""
_CONNECTING = frozenset(["properties", "items", "prefixItems", "allOf", "anyOf", "oneOf", "$ref"])
"""Keywords that restrict values only by their subschemas."""
_EASED = frozenset(["additionalProperties", "additionalItems", "items"]) | frozenset(
    ["unevaluatedProperties", "unevaluatedItems"]
)
"""Keywords that an edit sets to True when it drops another keyword beside them."""
_DROPPING_ORDER = (
    *("not", "if", "format", "pattern", "multipleOf", "exclusiveMaximum", "maximum"),
    *("exclusiveMinimum", "minimum", "maxLength", "minLength", "uniqueItems", "maxItems"),
    *("contains", "minItems", "maxProperties", "minProperties", "propertyNames"),
    *("unevaluatedProperties", "unevaluatedItems", "dependentRequired", "dependentSchemas"),
    *("dependencies", "additionalProperties", "additionalItems", "required", "patternProperties"),
    *("others", "const", "enum", "properties"),
)
"""Keywords in the order in which they are relaxed, if any of several will do."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The subschema at ``pointer`` is empty; ``reason`` names the keywords that clash."""

    pointer: str
    reason: str
    edits: tuple[Edit, ...]
    """Edits each of which would resolve it, the one that loses least first."""

    @property
    def error(self) -> UnsatisfiableSchema:
        where = self.pointer or "the root"
        message = f"no value satisfies the schema at {where}: {self.reason}"
        return UnsatisfiableSchema(message, pointer=self.pointer)


def find_contradiction(schema: Any, limits: Limits, *, close: bool) -> Contradiction | None:
    """The contradiction in ``schema``; None if it is satisfiable, or none is found.

    ``close`` as for ``SchemaBuilder``.
    """
    return _Search(schema, limits, close=close).run()


class _Search:
    def __init__(self, schema: Any, limits: Limits, *, close: bool) -> None:
        self._core = schema
        self._limits = limits
        self._trials = Trials(limits, close=close)
        self._whole = Document(schema, limits)
        self._positive = positive_places(self._whole)

    def run(self) -> Contradiction | None:
        if not isinstance(self._core, dict) or not self._is_empty():
            return None
        self._reduce()
        node = self._find_deepest()
        named = list(self._find_named(node, {node.pointer}))
        edits = [edit for edit in named if edit[1] != "type"]
        if len(edits) > 1:
            named = edits
        edits = sorted(edits or [edit for edit in named if edit[0]], key=_loss)
        return Contradiction(node.pointer, self._reason(node, named), tuple(map(self._edit, edits)))

    def _is_empty(self, pointer: str = "") -> bool:
        """Whether surely nothing satisfies what is left of the schema, at ``pointer``."""
        return self._trials.run(self._core, pointer) == "empty"

    def _reduce(self) -> None:
        """Remove the parts without which the schema is still empty.

        All edits make the language larger: if it is empty in the end, it was empty before.
        """
        waiting, reduced = [""], set[str]()
        while waiting and self._trials.left > 0:
            here = waiting.pop()
            if here in reduced or here not in self._positive:
                continue
            reduced.add(here)
            document = Document(self._core, self._limits)
            node = document.find(here)
            if node is None or not isinstance(node.schema, dict):
                continue
            if isinstance(node.schema.get("required"), list):
                names = range(len(node.schema["required"]))
                # from the end, so that the indices before it stay what they are
                self._try_without([[(f"{here}/required/{n}", "required")] for n in reversed(names)])
            below = [child for child, _, _ in edges(node, document)]
            below = [child for child in below if child.pointer in self._positive]
            groups = [[edit for group in _groups(child) for edit in group] for child in below]
            self._try_without([group for group in groups if group])
            self._try_without(_groups(node))
            waiting += [child.pointer for child in below]

    def _try_without(self, groups: list[list[Edit]]) -> None:
        """Make those edits that leave the schema empty, all at once or by halves."""
        if not groups or self._trials.left <= 0:
            return
        before = self._core
        try:
            self._core = edited(before, *(edit for group in groups for edit in group))
        except (KeyError, IndexError, TypeError):  # one edit was inside a part that another removed
            self._core = before
        if self._is_empty():
            return
        self._core = before
        if len(groups) > 1:
            self._try_without(groups[: len(groups) // 2])
            self._try_without(groups[len(groups) // 2 :])

    def _find_deepest(self) -> Node:
        """The innermost subschema that nothing satisfies by itself, from one to the next."""
        self._document = document = Document(self._core, self._limits)
        found = here = document.root
        passed = {here.pointer}
        while True:
            empty = (
                child
                for child, keyword, signs in edges(here, document)
                if True in signs
                and child.pointer not in passed
                and isinstance(child.schema, dict)
                and self._is_empty(child.pointer)
                and all(map(self._is_empty, _beside(here, keyword)))
            )
            child = next(empty, None)
            if child is None:
                return found
            here = child
            passed.add(here.pointer)
            if not document.only_refers(here) and here.schema.keys() != {"$ref"}:
                found = here

    def _find_named(self, node: Node, passed: set[str]) -> Iterator[Edit]:
        """The keywords that are left in ``node`` and in what it uses."""
        below: dict[str, list[Edit]] = {}
        for child, keyword, _ in edges(node, self._document):
            above = child.pointer[len(node.pointer) + 1 :].partition("/")[0]
            inside = below.setdefault("$ref" if keyword == "$ref" else above, [])
            if child.schema is False:
                inside.append((node.pointer, above))
            elif (
                child.pointer not in passed
                and isinstance(child.schema, dict)
                and keyword not in ("if", "not")
            ):
                passed.add(child.pointer)
                inside.extend(self._find_named(child, passed))
        for edit in _all_of(node):
            inside = below.get(edit[1], [])
            if edit[1] not in _CONNECTING or edit in inside or (edit[1] == "$ref" and not inside):
                yield edit
            yield from (other for other in dict.fromkeys(inside) if other != edit)

    def _reason(self, node: Node, named: list[Edit]) -> str:
        shown = json.dumps(_bare(node.schema), ensure_ascii=False)
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
        names = [repr(pointer_to(edit).removeprefix(node.pointer + "/")) for edit in named]
        if not 0 < len(names) <= _MOST_NAMED:
            return f"its keywords reduce to {shown}"
        if len(names) == 1:
            return f"{names[0]} allows no value: {shown}"
        return f"{', '.join(names[:-1])} and {names[-1]} contradict each other: {shown}"

    def _edit(self, edit: Edit) -> Edit:
        """``edit``; of ``required``, if one name is at fault, only that name is dropped."""
        place, keyword = edit
        if keyword == "required":
            left, whole = self._document.find(place), self._whole.find(place)
            assert left is not None
            assert whole is not None
            if len(left.schema["required"]) == 1:
                (name,) = left.schema["required"]
                return f"{place}/required/{whole.schema['required'].index(name)}", keyword
        return edit


def _beside(node: Node, keyword: str) -> list[str]:
    """Pointers of a keyword's alternatives: a single empty one explains nothing."""
    count = len(node.schema[keyword]) if keyword in ("anyOf", "oneOf") else 0
    return [f"{node.pointer}/{keyword}/{index}" for index in range(count)]


def _all_of(node: Node) -> list[Edit]:
    """The keywords that say something in a subschema, ``type`` as the last."""
    if not isinstance(node.schema, dict):
        return []
    found = [
        (node.pointer, keyword)
        for keyword, value in node.schema.items()
        if keyword in FOLLOWED and not (keyword in _EASED and value is True)
    ]
    return sorted(found, key=lambda edit: edit[1] == "type")


def _groups(node: Node) -> list[list[Edit]]:
    """Groups of edits, each of which removes one keyword's restriction.

    ``oneOf`` comes first: without an ``anyOf`` beside it, it would become one.
    """
    return [
        [edit, (edit[0], "anyOf")] if edit[1] == "oneOf" and "anyOf" not in node.schema else [edit]
        for edit in sorted(_all_of(node), key=lambda edit: edit[1] != "oneOf")
    ]


def _bare(schema: Any) -> Any:
    """``schema`` for a message, without keywords that restrict nothing."""
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword not in FOLLOWED | {"then", "else"} or (keyword in _EASED and value is True):
            continue
        if keyword in SUBSCHEMA_MAPS and isinstance(value, dict):
            parts = {name: _bare(part) for name, part in value.items()}
            found[keyword] = {name: part for name, part in parts.items() if part not in ({}, True)}
            if not found[keyword]:
                del found[keyword]
        elif keyword in SUBSCHEMA_LISTS and isinstance(value, list):
            found[keyword] = [_bare(part) for part in value]
        else:
            found[keyword] = _bare(value) if keyword in SUBSCHEMA else value
    return found


def _loss(edit: Edit) -> int:
    return _DROPPING_ORDER.index(edit[1] if edit[1] in _DROPPING_ORDER else "others")


_STEPS = 600_000
"""Steps of all trials of one search, about a second: counted, so equal on every machine."""
_STEPS_OF_TRIAL, _STEPS_OF_NODE = 2_000, 20
_LIMITS = {"nodes": 100_000, "branch_steps": 30_000, "branches": 200}
_WORK = 300_000


class Trials:
    """Trial compilations with lower ``limits``; ``close`` as for ``SchemaBuilder``."""

    def __init__(self, limits: Limits, *, close: bool) -> None:
        smaller = {name: min(most, getattr(limits, name)) for name, most in _LIMITS.items()}
        self.limits = replace(limits, **smaller)
        self._close = close
        self.left = _STEPS
        """Steps that are left; the search ends when there are none."""

    def run(self, schema: Any, pointer: str = "") -> Literal["empty", "some", "refused"] | None:
        """The result for the subschema at ``pointer``; None if no steps are left for a trial."""
        if self.left <= 0:
            return None
        text = JsonText(json_pool(self.limits.nodes), self.limits)
        shared, builder = len(text.pool), None
        try:
            builder = SchemaBuilder(schema, text, close=self._close, start=pointer)
            root = builder.build()
            return "empty" if measured(text.pool, _WORK).length(root) >= INFINITE else "some"
        except (ConstraintError, RecursionError):
            return "refused"
        finally:
            self.left -= _STEPS_OF_TRIAL + _STEPS_OF_NODE * (len(text.pool) - shared)
            self.left -= builder.steps if builder else 0
