"""What several subschemas together ask of an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import SOME_MEMBER, counts

KeyMatches = Callable[[Node, str, str], bool | None]
"""Whether a pattern of a node's ``patternProperties`` matches a name; None where that depends on
the dialect of regular expressions."""


ABOUT_OTHERS = frozenset(["additionalProperties", "patternProperties"])
"""Keywords that say what members without a name in ``properties`` must be."""


@dataclass(frozen=True, slots=True)
class SomeMember:
    """A member that must be there, of whatever name: what negations of object keywords ask for.

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


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """What an object must be like.

    ``members`` are those with a name of their own, in the order they are written. ``open`` says
    whether there may be others, called free. ``some`` are nodes with ``SOME_MEMBER``.
    """

    members: tuple[Member, ...]
    open: bool
    low: int
    high: int | None
    some: tuple[Node, ...]


def object_shape(nodes: Goal, matches: KeyMatches, *, close: bool) -> ObjectShape:
    """What ``nodes`` together ask of an object.

    ``close``: where one of them has ``properties`` and none says anything about other members,
    there are none, unless something asks for more members than have names.
    """
    names = {name: False for node in nodes for name in node.schema.get("properties", ())}
    names |= {name: True for node in nodes for name in node.schema.get("required", ())}
    members = tuple(
        Member(name, member_goal(nodes, name, matches), required)
        for name, required in names.items()
    )
    low, high = counts(nodes, "minProperties", "maxProperties")
    some = tuple(node for node in nodes if SOME_MEMBER in node.schema)
    declared = any("properties" in node.schema and not node.aspect for node in nodes)
    said = any(not ABOUT_OTHERS.isdisjoint(node.schema) for node in nodes)
    closed = close and declared and not said and not some and low <= len(members)
    return ObjectShape(members, not closed, low, high, some)


def member_goal(nodes: Goal, name: str, matches: KeyMatches) -> Goal:
    """What ``nodes`` ask of the member ``name``.

    Where dialects disagree about a pattern, what either asks.
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


def is_that_member(node: Node, name: str, matches: KeyMatches) -> bool:
    """Whether a member called ``name`` may be the one that ``node`` asks for, its ``name`` aside.

    Where dialects disagree about a pattern: no.
    """
    some: SomeMember = node.schema[SOME_MEMBER]
    if name in some.names:
        return False
    if some.matching is not None and not matches(node, some.matching, name):
        return False
    return all(matches(node, pattern, name) is False for pattern in some.patterns)
