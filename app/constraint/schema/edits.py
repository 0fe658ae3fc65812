"""Relaxed schemas: without a keyword at one place, where it cannot be enforced.

Dropping a keyword makes the language larger only if no negation is on the way to it.
So ``widening`` goes up to a keyword that can be dropped: below ``not`` to the ``not``, below
``if`` to the ``if``, below ``contains`` with ``maxContains`` to the latter, and ``oneOf`` becomes
``anyOf``. A subschema is looked at wherever a reference leads to it.

Dropped keywords no longer evaluate members and items, nor say that an object is open: a
subschema that loses such a keyword gets ``additionalProperties`` and ``items`` that admit all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from app.constraint.limits import Limits
from app.constraint.schema.document import (
    Document,
    Node,
    escape_token,
    lonely_ref,
    subschemas,
    tokens_of,
)
from app.constraint.schema.keywords import EXACT_CHOICE, FOLLOWED, GRAMMAR, VERBATIM
from app.core.errors import ConstraintError, ConstraintTooComplex, UnsupportedSchema

Edit = tuple[str, str]
"""A pointer to a subschema, and its keyword that is dropped; "": all but ``type``.

Or a pointer to one name in ``required``, and "required": the name is no longer required.
"""

OURS = frozenset([VERBATIM, EXACT_CHOICE, GRAMMAR])
"""Extensions, which are never dropped (``relaxation._widened`` keeps them, too)."""

_EXCLUDING = frozenset(
    [
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "format", "not"),
        *("minItems", "maxItems", "uniqueItems", "maxContains", "propertyNames", "maxProperties"),
    ]
)
"""Keywords that do nothing but exclude values."""
_REFERENCES = frozenset(["$ref", "$dynamicRef", "$recursiveRef"])
_KEPT_BESIDE_REF = frozenset(["$schema", "$defs", "definitions"])
_DROPPED_TOGETHER = FOLLOWED - OURS - {"type"}
_STORES = frozenset(["$defs", "definitions"])


def edited(schema: Any, *edits: Edit) -> Any:
    """``schema`` with one edit after the other, or none. The schema itself is not changed.

    Raises ``KeyError`` where a place is not there.
    """
    lonely = lonely_ref(schema)
    for place, keyword in edits:
        schema = _replaced(schema, tokens_of(place), keyword, lonely)
    return schema


def widening(schema: Any, edit: Edit, limits: Limits) -> list[Edit]:
    """Edits, in order, that make the language larger: ``edit``, or those that replace it.

    Empty if ``edit`` is at a place that is not used. Cost: a walk of the schema. Raises
    ``ConstraintError`` for a schema that cannot be walked.
    """
    uses = _Uses(Document(schema, limits))
    place, passed = edit[0], set[str]()
    if _is_name(edit):
        place = place.rpartition("/required/")[0]
    while (place, False) in uses.negation:
        boundary = uses.negation[place, False]
        if boundary is None or boundary[0] in passed:
            # Negations inside one another: without all of them on the way to it, it is positive.
            return sorted(uses.negations_of(edit[0]), key=lambda e: (-len(e[0]), e))
        edit = boundary
        place = edit[0]
        passed.add(place)
    return [edit] if (place, True) in uses.negation else []


def at_fault(schema: Any, error: ConstraintError) -> Edit | None:
    """The edit that avoids an error; None for keywords that are never dropped."""
    if isinstance(error, UnsupportedSchema) and error.keyword in OURS:
        return None
    pointer: str = getattr(error, "pointer", None) or ""
    if isinstance(error, ConstraintTooComplex) or not pointer:
        return pointer, ""
    place, _, last = pointer.rpartition("/")
    (keyword,) = tokens_of(f"/{last}")
    node = _value_at(schema, tokens_of(place))
    known = keyword in FOLLOWED or keyword == "$schema"
    return place, keyword if known and isinstance(node, dict) and keyword in node else ""


def _value_at(schema: Any, tokens: list[str]) -> Any:
    """The value at a path; None if there is none."""
    for token in tokens:
        if isinstance(schema, dict) and token in schema:
            schema = schema[token]
        elif isinstance(schema, list) and token.isdecimal() and int(token) < len(schema):
            schema = schema[int(token)]
        else:
            return None
    return schema


def _replaced(value: Any, tokens: list[str], keyword: str, lonely: bool) -> Any:
    if not tokens:
        return _relaxed(value, keyword, lonely)
    token, *rest = tokens
    if isinstance(value, list):
        index = int(token)
        if keyword == "required" and isinstance(value[index], str):
            return [*value[:index], *value[index + 1 :]]
        return [*value[:index], _replaced(value[index], rest, keyword, lonely), *value[index + 1 :]]
    return {**value, token: _replaced(value[token], rest, keyword, lonely)}


def _relaxed(node: Any, keyword: str, lonely: bool) -> Any:
    """A subschema without what ``keyword`` excludes."""
    if not isinstance(node, dict):
        return True
    left = {name: value for name, value in node.items() if name != keyword}
    match keyword:
        case "":
            kept = {name: each for name, each in node.items() if name not in _DROPPED_TOGETHER}
            return _opened({**kept, "items": True})
        case "$schema":
            return left
        case "unevaluatedProperties" | "unevaluatedItems":
            return {**left, keyword: True}
        case "oneOf" if "anyOf" not in node:
            return {"anyOf" if name == "oneOf" else name: each for name, each in node.items()}
        case "contains" | "minContains":
            for name in ("contains", "minContains", "maxContains"):
                left.pop(name, None)
            return _opened(left)
        case "items" | "prefixItems" | "additionalItems":
            for name in ("items", "prefixItems", "additionalItems"):
                left.pop(name, None)
            return {**left, "items": True}
        case "properties" | "patternProperties" | "additionalProperties":
            return {**left, "additionalProperties": True}
        case _ if keyword in _REFERENCES and lonely:
            return _opened({name: left[name] for name in left if name in _KEPT_BESIDE_REF})
        case _ if keyword in _EXCLUDING:
            return left
    return _opened(left)


def _opened(node: dict[str, Any]) -> dict[str, Any]:
    """``node`` with any other members and items admitted, unless it restricts them itself."""
    others = "additionalItems" if isinstance(node.get("items"), list) else "items"
    return {"additionalProperties": True, others: True, **node}


def positive_places(document: Document) -> set[str]:
    """Pointers of the subschemas that are used, and nowhere negated."""
    uses = _Uses(document).negation
    return {place for place, positive in uses if positive and (place, False) not in uses}


class _Uses:
    """Where a document's subschemas are used, from the root on."""

    def __init__(self, document: Document) -> None:
        self.negation: dict[tuple[str, bool], Edit | None] = {("", True): None}
        """First negation on the way from the root, by pointer and polarity (True: as it is)."""
        self._above: dict[str, list[tuple[str, Edit | None]]] = {}
        """Parents by pointer, each with the edit that drops a negation in between, if any."""
        waiting = deque([(document.root, True)])
        while waiting:
            node, positive = waiting.popleft()
            way = self.negation[node.pointer, positive]
            if not isinstance(node.schema, dict):
                continue
            for child, keyword, signs in edges(node, document):
                edit = None if signs == (True,) else (node.pointer, keyword)
                self._above.setdefault(child.pointer, []).append((node.pointer, edit))
                for sign in signs:
                    use = child.pointer, positive is sign
                    if use not in self.negation:
                        self.negation[use] = way if sign or way is not None else edit
                        waiting.append((child, use[1]))

    def negations_of(self, place: str) -> set[Edit]:
        """All negations on the ways from the root to ``place``."""
        found: set[Edit] = set()
        seen, waiting = {place}, [place]
        while waiting:
            for above, edit in self._above.get(waiting.pop(), ()):
                if edit is not None:
                    found.add(edit)
                if above not in seen:
                    seen.add(above)
                    waiting.append(above)
        return found


def edges(node: Node, document: Document) -> Iterator[tuple[Node, str, tuple[bool, ...]]]:
    """Subschemas that a node uses, each with the keyword to drop if that negates it, and its
    polarities: as it is (True), negated (False) or both."""
    try:
        targets = document.references(node)
    except ConstraintError:
        targets = []
    yield from ((target, "$ref", (True,)) for target in targets)
    if document.only_refers(node):
        return
    schema = node.schema
    for path, _ in subschemas(schema):
        keyword = str(path[0])
        if keyword in _STORES:
            continue
        child = node.child(*path)
        if keyword == "not":
            yield child, "not", (False,)
        elif keyword == "if" or (keyword == "oneOf" and len(schema["oneOf"]) > 1):
            yield child, keyword, (True, False)
        elif keyword == "contains" and "maxContains" in schema:
            yield child, "maxContains", (True, False)
        else:
            yield child, keyword, (True,)


def moves(schema: Any, edit: Edit) -> bool:
    """Whether ``edit`` changes pointers to what is left of ``schema``: ``oneOf`` becomes ``anyOf``,
    or a name in ``required`` is dropped."""
    place, keyword = edit
    if keyword == "oneOf":
        return "anyOf" not in _value_at(schema, tokens_of(place))
    return _is_name(edit)


def renamed(pointer: str, edits: Sequence[Edit]) -> str:
    """The pointer before ``edits``, which move places, of one after them."""
    for place, keyword in reversed(edits):
        now = f"{place}/anyOf"
        if keyword == "oneOf" and (pointer == now or pointer.startswith(now + "/")):
            pointer = f"{place}/oneOf{pointer[len(now) :]}"
        elif _is_name((place, keyword)):
            (names, _, gone), (others, _, index) = place.rpartition("/"), pointer.rpartition("/")
            if names == others and int(index) >= int(gone):
                pointer = f"{names}/{int(index) + 1}"
    return pointer


def pointer_to(edit: Edit) -> str:
    """The pointer to the keyword, or to the subschema as a whole."""
    place, keyword = edit
    return f"{place}/{escape_token(keyword)}" if keyword and not _is_name(edit) else place


def _is_name(edit: Edit) -> bool:
    """Whether it is about one name in ``required``."""
    place, keyword = edit
    names, _, index = place.rpartition("/")
    return keyword == "required" and names.endswith("/required") and index.isdecimal()
