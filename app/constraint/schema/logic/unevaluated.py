"""``unevaluatedProperties`` and ``unevaluatedItems`` in one branch.

In a branch it is settled which subschemas hold, so what they evaluate is known, and the rest is
said with ``additionalProperties`` and ``items`` (core, sections 11.2 and 11.3).

In the example the branch  R, N, O, T  gets U: R evaluates ``kind``, T evaluates ``lemon`` too, and
N evaluates nothing, as it comes from a negation. The branch of M gets V, without ``lemon``.
"""

from __future__ import annotations

from typing import Any

from app.constraint.schema.arrays import item_keywords
from app.constraint.schema.document import Node


def watches(node: Node) -> bool:
    """Whether ``node`` asks what others evaluate."""
    schema = node.schema
    return isinstance(schema, dict) and (
        "unevaluatedProperties" in schema or "unevaluatedItems" in schema
    )


def rest(owner: Node, scope: list[Node], *, contains_counts: bool) -> list[Node]:
    """What ``owner`` asks of all that the nodes of ``scope``, ``owner`` among them, leave.

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
    names: dict[str, bool] = {}
    patterns: dict[str, bool] = {}
    for node in scope:
        names.update(dict.fromkeys(node.schema.get("properties", ()), True))
        patterns.update(dict.fromkeys(node.schema.get("patternProperties", ()), True))
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
