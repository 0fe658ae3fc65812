"""What the applicators of one subschema ask of the same value: more subschemas, and disjunctions.

In the example R has one subschema that holds with it, ``not S``, and one disjunction: exactly one
of T, M and B.
"""

from __future__ import annotations

from typing import Any

from app.constraint.schema.document import Document, Node
from app.constraint.schema.logic.negation import Alternative, negated
from app.core.errors import ConstraintTooComplex

_MOST_SUBSETS_OF = 8
"""Alternatives of which several may hold, beside keywords that ask which of them do."""


def children_that_hold(node: Node, document: Document) -> list[Node]:
    """Subschemas for the same value that hold wherever ``node`` does."""
    children = document.references(node)
    if document.only_refers(node):
        return children
    children += node.children("allOf")
    if "not" in node.schema:
        children.append(negated(node.child("not")))
    return children


def disjunctions(node: Node, *, watched: bool) -> list[tuple[list[Alternative], bool]]:
    """Alternatives of which one must hold; and whether exactly one, each being of one node.

    ``watched``: it matters which of the alternatives hold, beyond that one does.
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
    """Every selection of one or more, the largest first: each may evaluate something."""
    if len(children) > _MOST_SUBSETS_OF:
        reason = f"anyOf of more than {_MOST_SUBSETS_OF} beside unevaluated keywords"
        raise ConstraintTooComplex(reason)
    bits = sorted(range(1, 1 << len(children)), key=lambda bits: -bits.bit_count())
    return [tuple(c for n, c in enumerate(children) if chosen >> n & 1) for chosen in bits]


def _dependency(node: Node, keyword: str, name: str, needed: Any) -> list[Alternative]:
    """The member ``name`` is not there, or what it needs is."""
    absent = node.made(f"without {name!r}", {"properties": {name: False}})
    if isinstance(needed, list):
        there = {"type": "object", "required": [name, *needed]}
        return [(absent,), (node.made(f"{keyword} {name!r}", there),)]
    there = {"type": "object", "required": [name]}
    return [(absent,), (node.made(f"with {name!r}", there), node.child(keyword, name))]
