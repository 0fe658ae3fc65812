"""Applicators of one subschema that apply to the same value, and partial branches.

Applicators add subschemas and disjunctions. In the example R adds one subschema, ``not S``, and one
disjunction: exactly one of T, M and B. A partial branch has pending subschemas (in brackets), open
disjunctions (in parentheses) and finished subschemas:

    [R]  ->  R [not S] (T | M | B)  ->  R [N] (T | M | B)  ->  R N (T | M | B)  ->  R N [O T]
                                                                                    R N [O M]

In a branch it is settled which subschemas hold, so what they evaluate is known, and the rest of
``unevaluatedProperties`` and ``unevaluatedItems`` is said with ``additionalProperties`` and
``items`` (core, sections 11.2 and 11.3). The branch  R, N, O, T  gets U: R evaluates ``kind``, T
evaluates ``lemon`` too, and N evaluates nothing, as it comes from a negation. The branch of M gets
V, without ``lemon``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from app.constraint.schema.document import Node
from app.constraint.schema.logic.negation import Alternative, negated
from app.constraint.schema.shapes import item_keywords
from app.core.errors import ConstraintTooComplex

_MOST_SUBSETS_OF = 8
"""Maximum alternatives of ``anyOf`` beside unevaluated keywords, which need all subsets."""


def disjunctions(node: Node, *, watched: bool) -> list[tuple[list[Alternative], bool]]:
    """Alternatives of which one must hold; and whether exactly one, each being of one node.

    ``watched``: it matters which alternatives hold, and not only that one does.
    """
    schema = node.schema
    found: list[tuple[list[Alternative], bool]] = []
    if "anyOf" in schema:
        children = node.children("anyOf")
        found.append((_subsets(children) if watched else [(c,) for c in children], False))
    if "oneOf" in schema:
        found.append(([(child,) for child in node.children("oneOf")], True))
    if "if" in schema and (watched or "then" in schema or "else" in schema):
        condition = node.child("if")
        then = (node.child("then"),) if "then" in schema else ()
        otherwise = (node.child("else"),) if "else" in schema else ()
        found.append(([(condition, *then), (negated(condition), *otherwise)], False))
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        for name, needed in schema.get(keyword, {}).items():
            found.append((_dependency(node, keyword, name, needed), False))
    return found


def _subsets(children: list[Node]) -> list[Alternative]:
    """All nonempty subsets, the largest first: each child may evaluate something."""
    if len(children) > _MOST_SUBSETS_OF:
        reason = f"anyOf of more than {_MOST_SUBSETS_OF} beside unevaluated keywords"
        raise ConstraintTooComplex(reason)
    bits = sorted(range(1, 1 << len(children)), key=lambda bits: -bits.bit_count())
    return [tuple(c for n, c in enumerate(children) if chosen >> n & 1) for chosen in bits]


def _dependency(node: Node, keyword: str, name: str, needed: Any) -> list[Alternative]:
    """The member ``name`` is absent, or its dependency holds."""
    absent = node.made(f"without {name!r}", {"properties": {name: False}})
    if isinstance(needed, list):
        there = {"type": "object", "required": [name, *needed]}
        return [(absent,), (node.made(f"{keyword} {name!r}", there),)]
    there = {"type": "object", "required": [name]}
    return [(absent,), (node.made(f"with {name!r}", there), node.child(keyword, name))]


def unevaluated_rest(owner: Node, scope: list[Node], *, contains_counts: bool) -> list[Node]:
    """Restrictions of ``owner`` on what ``scope``, which includes ``owner``, leaves unevaluated.

    ``contains_counts``: whether items that satisfy ``contains`` are evaluated by it.
    """
    name = f"unevaluated beside {' '.join(sorted(f'{n.pointer} {n.aspect}' for n in scope))}"
    made: list[dict[str, Any]] = []
    others = [node for node in scope if node is not owner]
    if "unevaluatedProperties" in owner.schema:
        made += _properties(owner, scope, others)
    if "unevaluatedItems" in owner.schema:
        made += _items(owner, scope, others, contains_counts=contains_counts)
    return [owner.made(f"{name} {number}", schema) for number, schema in enumerate(made)]


def _properties(owner: Node, scope: list[Node], others: list[Node]) -> list[dict[str, Any]]:
    if any("additionalProperties" in node.schema for node in scope):
        return []
    if any("unevaluatedProperties" in node.schema for node in others):
        return []
    names = {name: True for node in scope for name in node.schema.get("properties", ())}
    patterns = {p: True for node in scope for p in node.schema.get("patternProperties", ())}
    left = owner.child("unevaluatedProperties")
    return [{"properties": names, "patternProperties": patterns, "additionalProperties": left}]


def _items(
    owner: Node, scope: list[Node], others: list[Node], *, contains_counts: bool
) -> list[dict[str, Any]]:
    if any("unevaluatedItems" in node.schema for node in others):
        return []
    size, wanted = 0, []
    for node in scope:
        _, first, rest = item_keywords(node)
        if rest in node.schema:
            return []
        size = max(size, len(first))
        if contains_counts and "contains" in node.schema:
            wanted.append(node.child("contains"))
    left = owner.child("unevaluatedItems")
    if wanted:
        pointers = " ".join(node.pointer for node in wanted)
        left = owner.made(f"unevaluated or {pointers}", {"anyOf": [*wanted, left]})
    return [{"prefixItems": [True] * size, "items": left}]


Branch = tuple[Node, ...]
"""Subschemas whose own assertions hold together; () admits every value."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A node, and the nodes it was reached through inside one value."""

    node: Node
    above: frozenset[Node] = frozenset()
    annotates: bool = True
    """False below a negation: what it evaluates does not count for ``unevaluatedProperties``."""


@dataclass(frozen=True, slots=True, eq=False)
class Disjunction:
    """Alternatives of which one must hold; ``exclusive``: exactly one, each of one node."""

    name: tuple[Node, int]
    """The node that it belongs to, and its index among that node's disjunctions."""
    alternatives: list[Alternative]
    above: frozenset[Node]
    annotates: bool
    exclusive: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PartialBranch:
    """A branch under construction."""

    pending: tuple[Reached, ...]
    disjunctions: tuple[Disjunction, ...] = ()
    done: tuple[Reached, ...] = ()
    held: frozenset[Node] = frozenset()
    """Subschemas and negations that were visited; a node that contradicts one is void."""

    @property
    def branch(self) -> Branch:
        return tuple([reached.node for reached in self.done])

    @property
    def meaning(self) -> Hashable:
        """A key that is equal only for partial branches with the same result."""
        pending = tuple([reached.node for reached in self.pending])
        return pending, tuple([each.name for each in self.disjunctions]), self.branch

    def after_first(self) -> PartialBranch:
        """This branch without its first pending subschema."""
        return replace(self, pending=self.pending[1:])


def add(done: tuple[Reached, ...], reached: Reached) -> tuple[Reached, ...]:
    """``done`` and ``reached``; a node that was reached in two ways is kept once.

    It annotates for those above it on ways that do.
    """
    for index, other in enumerate(done):
        if other.node is reached.node:
            if other.annotates == reached.annotates:
                reached = Reached(other.node, other.above | reached.above, other.annotates)
            elif other.annotates:
                reached = other
            return (*done[:index], reached, *done[index + 1 :])
    return (*done, reached)
