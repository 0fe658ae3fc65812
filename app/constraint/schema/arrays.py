"""What several subschemas together ask of an array."""

from __future__ import annotations

from dataclasses import dataclass

from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import SOME_ITEM, counts


@dataclass(frozen=True, slots=True)
class Wanted:
    """Among the items from the index ``start`` on, ``low`` to ``high`` satisfy ``node``."""

    node: Node
    start: int
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """The first items one by one, then all others; ``high`` is None without bound."""

    prefix: tuple[Goal, ...]
    rest: Goal
    low: int
    high: int | None
    wanted: tuple[Wanted, ...]
    unique: Node | None
    """A node that asks for ``uniqueItems``."""


def array_shape(nodes: Goal) -> ArrayShape:
    """What ``nodes`` together ask of an array."""
    longest = max((len(item_keywords(node)[1]) for node in nodes), default=0)
    unique = [node for node in nodes if node.schema.get("uniqueItems") is True]
    return ArrayShape(
        tuple(item_goal(nodes, index) for index in range(longest)),
        item_goal(nodes, longest),
        *counts(nodes, "minItems", "maxItems"),
        tuple(wanted for node in nodes for wanted in _wanted(node)),
        unique[0] if unique else None,
    )


def item_goal(nodes: Goal, index: int) -> Goal:
    """What ``nodes`` ask of the item at ``index``."""
    goal: list[Node] = []
    for node in nodes:
        keyword, prefix, rest = item_keywords(node)
        if index < len(prefix):
            goal.append(node.child(keyword, index))
        elif rest in node.schema:
            goal.append(node.child(rest))
    return tuple(goal)


def _wanted(node: Node) -> list[Wanted]:
    found = []
    if "contains" in node.schema:
        low, high = int(node.schema.get("minContains", 1)), node.schema.get("maxContains")
        if low > 0 or high is not None:
            high = None if high is None else int(high)
            found.append(Wanted(node.child("contains"), 0, low, high))
    if SOME_ITEM in node.schema:
        start, wanted = node.schema[SOME_ITEM]
        found.append(Wanted(wanted, start, 1, None))
    return found


def item_keywords(node: Node) -> tuple[str, list[object], str]:
    """The keyword that lists the first items, its list, and the keyword for all others.

    Older drafts list them in ``items``.
    """
    items = node.schema.get("items")
    if isinstance(items, list):
        return "items", items, "additionalItems"
    return "prefixItems", node.schema.get("prefixItems", []), "items"
