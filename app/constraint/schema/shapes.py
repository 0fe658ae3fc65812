"""Combined restrictions of several subschemas on an array or an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import CASES, SOME_ITEM, SOME_MEMBER, counts


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
    """Combined restrictions of ``nodes`` on an array."""
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
    """The subschemas of ``nodes`` for the item at ``index``."""
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


KeyMatches = Callable[[Node, str, str], bool | None]
"""Whether a pattern of a node's ``patternProperties`` matches a name; None where that depends on
the dialect of regular expressions."""


ABOUT_OTHERS = frozenset(["additionalProperties", "patternProperties"])
"""Keywords about members that ``properties`` does not name."""


@dataclass(frozen=True, slots=True)
class SomeMember:
    """A member that must exist, under any name: required by negations of object keywords.

    Its name is none of ``names``, matches none of ``patterns``, matches ``matching`` and satisfies
    ``name``, where these are given; its value satisfies ``value``.
    """

    value: Node
    name: Node | None = None
    matching: str | None = None
    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    goal: Goal
    required: bool


Demand = tuple[bool, Goal]
"""Demand of an alternative on a member: whether it is required, and the goal of its value."""


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """Restrictions on an object.

    ``members`` are those with a name of their own, in the order they are written. ``open`` says
    whether there may be others, called free. ``some`` are nodes with ``SOME_MEMBER``,
    ``choices`` the demands of nodes with ``CASES``: by alternative, by name.
    """

    members: tuple[Member, ...]
    open: bool
    low: int
    high: int | None
    some: tuple[Node, ...]
    choices: tuple[tuple[dict[str, Demand], ...], ...] = ()


def object_shape(nodes: Goal, matches: KeyMatches, *, close: bool) -> ObjectShape:
    """Combined restrictions of ``nodes`` on an object.

    ``close``: if one of them has ``properties`` and none is about other members, there are no
    others, unless more members are required than have names.
    """
    choices = tuple(tuple(map(demands_of, n.schema[CASES])) for n in nodes if CASES in n.schema)
    names = {name: False for node in nodes for name in node.schema.get("properties", ())}
    names |= {name: False for ways in choices for way in ways for name in way}
    names |= {name: True for node in nodes for name in node.schema.get("required", ())}
    members = tuple(
        Member(name, member_goal(nodes, name, matches), required)
        for name, required in names.items()
    )
    low, high = counts(nodes, "minProperties", "maxProperties")
    some = tuple(node for node in nodes if SOME_MEMBER in node.schema)
    declared = any("properties" in node.schema and not node.aspect for node in nodes)
    others = any(not ABOUT_OTHERS.isdisjoint(node.schema) for node in nodes)
    closed = close and declared and not others and not some and low <= len(members)
    return ObjectShape(members, not closed, low, high, some, choices)


def names_in(node: Node) -> dict[str, None]:
    """The members that ``properties`` and ``required`` of a node speak of."""
    return dict.fromkeys([*node.schema.get("properties", ()), *node.schema.get("required", ())])


def demands_of(case: Goal) -> dict[str, Demand]:
    """Demands of nodes with ``properties`` and ``required`` on members, by name."""
    return {
        name: (
            any(name in node.schema.get("required", ()) for node in case),
            member_goal(case, name, lambda node, pattern, name: False),
        )
        for node in case
        for name in names_in(node)
    }


def member_goal(nodes: Goal, name: str, matches: KeyMatches) -> Goal:
    """The subschemas of ``nodes`` for the member ``name``.

    If dialects disagree about a pattern, its subschema is included too.
    """
    goal: list[Node] = []
    for node in nodes:
        additional = "additionalProperties" in node.schema
        if name in node.schema.get("properties", ()):
            goal.append(node.child("properties", name))
            additional = False
        for pattern in node.schema.get("patternProperties", ()):
            matched = matches(node, pattern, name)
            if matched is not False:
                goal.append(node.child("patternProperties", pattern))
            if matched:
                additional = False
        if additional:
            goal.append(node.child("additionalProperties"))
    return tuple(goal)


def property_names(nodes: Goal) -> Goal:
    """The subschemas of ``nodes`` for all names."""
    return tuple([node.child("propertyNames") for node in nodes if "propertyNames" in node.schema])


def is_that_member(node: Node, name: str, matches: KeyMatches) -> bool:
    """Whether a member ``name`` may be the one that ``node`` asks for, but for its ``name`` schema.

    False if dialects disagree about a pattern.
    """
    some: SomeMember = node.schema[SOME_MEMBER]
    if name in some.names:
        return False
    if some.matching is not None and not matches(node, some.matching, name):
        return False
    return all(matches(node, pattern, name) is False for pattern in some.patterns)
