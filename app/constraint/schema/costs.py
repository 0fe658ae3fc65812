"""Which keywords of a subschema make it too complex: those that are relaxed, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.constraint.limits import Limits
from app.constraint.schema.document import Document, Node
from app.constraint.schema.keywords import FOLLOWED
from app.constraint.schema.relaxing import Edit, edges, edited
from app.constraint.schema.trials import Trials
from app.core.errors import ConstraintError

_CHEAP = frozenset(
    ["type", "properties", "required", "additionalProperties", "items", "prefixItems", "const"]
) | frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
"""Keywords that cost no more than their subschemas do."""
_PASSED = frozenset(["$ref", "allOf"])
_SAME_VALUE = frozenset(["anyOf", "oneOf", "not", "if", "then", "else"])
_PARTS = {"if": ("if", "then", "else")}
"""Of which keywords the subschemas go with one that is dropped, where it is not itself."""


def costly(schema: Any, place: str, limits: Limits, *, close: bool) -> list[Edit]:
    """Keywords, inner ones first, without which the subschema at ``place`` is not too complex.

    Those that say something of the same value are taken out together, and put back by halves as
    long as the rest is well within ``limits``; of what stays out, what is inside it is tried in its
    place. None where that does not help, or is not found in time.
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
        """Whether the rest is not too complex; then that is what is dropped."""
        left = edited(self._schema, *sorted(dropped, key=lambda edit: (-len(edit[0]), edit)))
        if self._trials.of(left, self._place) not in ("some", "empty"):
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
        """What may be dropped of subschemas and of all that holds wherever they do."""
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
