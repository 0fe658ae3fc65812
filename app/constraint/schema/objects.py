"""Objects and arrays: what several subschemas ask of the parts, and how the whole is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.constraint.expressions import Expression
from app.constraint.json_text import JsonText
from app.constraint.schema.document import Goal, Node

Value = Callable[[Goal], Expression]
"""Builds the values that satisfy a goal."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    goal: Goal
    required: bool


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """Members by name, in the order they are written; ``free`` is None where no others may be."""

    members: tuple[Member, ...]
    free: Goal | None


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """The first items one by one, then all others; ``high`` is None without bound."""

    prefix: tuple[Goal, ...]
    rest: Goal
    low: int
    high: int | None


def object_shape(nodes: Goal, *, close: bool) -> ObjectShape:
    """What ``nodes`` together ask of an object.

    ``close``: where none of them says anything about additional properties and one has
    ``properties``, there are none.
    """
    names: dict[str, bool] = {}
    for node in nodes:
        names.update(dict.fromkeys(node.schema.get("properties", ()), False))
    declared = bool(names) or any("properties" in node.schema for node in nodes)
    for node in nodes:
        names.update(dict.fromkeys(node.schema.get("required", ()), True))
    members = tuple(
        Member(name, member_goal(nodes, name), required) for name, required in names.items()
    )
    extra = tuple(_child(node, "additionalProperties") for node in nodes)
    free = tuple(node for found in extra for node in found)
    closed = close and declared and not free
    return ObjectShape(members, None if closed else free)


def member_goal(nodes: Goal, name: str) -> Goal:
    """What ``nodes`` ask of the member ``name``."""
    goal: list[Node] = []
    for node in nodes:
        if name in node.schema.get("properties", ()):
            goal.append(node.child("properties", name))
        else:
            goal.extend(_child(node, "additionalProperties"))
    return tuple(goal)


def array_shape(nodes: Goal) -> ArrayShape:
    """What ``nodes`` together ask of an array."""
    lows = [int(node.schema["minItems"]) for node in nodes if "minItems" in node.schema]
    highs = [int(node.schema["maxItems"]) for node in nodes if "maxItems" in node.schema]
    longest = max((len(_prefix(node)[1]) for node in nodes), default=0)
    return ArrayShape(
        tuple(item_goal(nodes, index) for index in range(longest)),
        item_goal(nodes, longest),
        max(lows, default=0),
        min(highs, default=None),
    )


def item_goal(nodes: Goal, index: int) -> Goal:
    """What ``nodes`` ask of the item at ``index``."""
    goal: list[Node] = []
    for node in nodes:
        keyword, prefix = _prefix(node)
        if index < len(prefix):
            goal.append(node.child(keyword, index))
        else:
            goal.extend(_child(node, "additionalItems" if keyword == "items" else "items"))
    return tuple(goal)


def write_object(text: JsonText, shape: ObjectShape, value: Value) -> Expression:
    """The text of an object. Tails are shared, so the cost is linear in the members.

    A tail begins after a member that is there; the first member written has no comma before it.
    """
    pool = text.pool
    free = pool.empty
    if shape.free is not None:
        names = [member.name for member in shape.members]
        free_value = value(shape.free)
        if free_value != pool.empty:
            free = text.free_member(free_value, names)
    tail = pool.concatenate(pool.repeat(pool.concatenate(text.comma, free)), pool.literal(b"}"))
    first_free = text.separated(free, 0, None)
    starts = [pool.concatenate(first_free, pool.literal(b"}"))]
    for member in reversed(shape.members):
        written = text.member(member.name, value(member.goal))
        start = pool.concatenate(written, tail)
        later = pool.concatenate(text.comma, written)
        if member.required:
            starts = [start]
            tail = pool.concatenate(later, tail)
        else:
            starts.append(start)
            tail = pool.concatenate(pool.optional(later), tail)
    return pool.concatenate(pool.literal(b"{"), pool.union(starts))


def write_array(text: JsonText, shape: ArrayShape, value: Value) -> Expression:
    """The text of an array; built from the last item, as objects are."""
    pool = text.pool
    high = shape.high
    if high is not None and high < shape.low:
        return pool.empty
    prefix = shape.prefix if high is None else shape.prefix[:high]
    size = len(prefix)
    rest = value(shape.rest) if high is None or high > size else pool.empty
    if not prefix:
        return text.array(rest, shape.low, high)
    more = pool.concatenate(text.comma, rest)
    most = None if high is None else high - size
    tail = pool.concatenate(pool.repeat(more, max(shape.low - size, 0), most), pool.literal(b"]"))
    end = pool.literal(b"]")
    for index in range(size - 1, -1, -1):
        item = value(prefix[index])
        comma = text.comma if index > 0 else pool.epsilon
        tail = pool.concatenate(comma, item, tail)
        if shape.low <= index:
            tail = pool.union((tail, end))
    return pool.concatenate(pool.literal(b"["), tail)


def _child(node: Node, keyword: str) -> Goal:
    return (node.child(keyword),) if keyword in node.schema else ()


def _prefix(node: Node) -> tuple[str, list[object]]:
    """The keyword that lists the first items, and its list (``items`` in older drafts)."""
    items = node.schema.get("items")
    if isinstance(items, list):
        return "items", items
    return "prefixItems", node.schema.get("prefixItems", [])
