"""Checks whether a value satisfies subschemas, and whether a branch is void.

The first selects the values of ``enum`` and ``const``. The second, as far as it is obvious without
building the branch, keeps the alternatives of ``oneOf``, ``not`` and ``if`` few: most of their
combinations contradict each other in a type, a constant or a required member.

In the example  R, N, O, B  is void: its member ``kind`` is required, and no value is both in the
``enum`` of R and the ``const`` of B.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import reduce
from operator import and_
from typing import Any

from app.constraint.cached_method import cached_method
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import (
    CASES,
    NOT_ENUM,
    NOT_INTEGER,
    NOT_UNIQUE,
    SOME_MEMBER,
    counts,
    identity,
    integers_only,
    kinds_of,
    types_of,
)
from app.constraint.schema.logic.applicators import Branch
from app.constraint.schema.logic.branches import Branches
from app.constraint.schema.logic.negation import NOT
from app.constraint.schema.numeric import admit_number, interval
from app.constraint.schema.shapes import (
    ABOUT_OTHERS,
    array_shape,
    is_that_member,
    item_goal,
    member_goal,
    property_names,
)
from app.constraint.schema.strings import Strings
from app.core.arguments import json_kind
from app.core.errors import ConstraintTooComplex

_DEEPEST = 6
"""Maximum nesting of members that is inspected."""
_ABOUT_MEMBERS = ABOUT_OTHERS | {"properties"}
"""Keywords that say what members must be."""
_MOST_VALUES = 1_000
"""Maximum values of an ``enum`` that are tried."""


def admits_type(node: Node, value: Any) -> bool:
    """Whether the keyword ``type`` of ``node``, if there, admits ``value``."""
    names = types_of(node)
    if names is None:
        return True
    kind = json_kind(value)
    return kind in names or (kind == "number" and "integer" in names and value == int(value))


class Evaluation:
    """Checks values, and proves branches void, with the same reading of keywords as the builder.

    Tells whether a value is valid for every validator or, ``loosely``, for some validator; then
    ``branches`` must be loose too. ``opposite`` returns the other evaluation of the two.
    """

    def __init__(
        self,
        branches: Branches,
        strings: Strings,
        opposite: Callable[[], Evaluation],
        *,
        loosely: bool,
    ) -> None:
        self._loose = loosely
        self._opposite = opposite
        self.branches = branches
        self._strings = strings
        self._void: dict[Branch, bool] = {}
        self._open: set[Goal] = set()
        """Goals that ``is_void`` is looking at."""
        self._cuts = 0
        """Number of checks that were cut short, at an open goal or too deep a nesting."""

    def admits(self, goal: Goal, value: Any) -> bool:
        """Whether ``value`` satisfies all of ``goal``, surely or possibly."""
        return any(self.branch_admits(branch, value) for branch in self.branches.of(goal))

    def branch_admits(self, branch: Branch, value: Any) -> bool:
        """Whether ``value`` satisfies the assertions of ``branch``."""
        for node in branch:
            if not admits_type(node, value):
                return False
            if "const" in node.schema and identity(node.schema["const"]) != identity(value):
                return False
            if "enum" in node.schema and identity(value) not in self._listed(node, "enum"):
                return False
            if NOT_ENUM in node.schema and identity(value) in self._listed(node, NOT_ENUM):
                return False
        return self.admits_content(branch, value)

    @cached_method
    def _listed(self, node: Node, keyword: Any) -> frozenset[Hashable]:
        return frozenset(map(identity, node.schema[keyword]))

    def admits_content(self, branch: Branch, value: Any) -> bool:
        """Whether the keywords for the value's own type admit it."""
        kind = json_kind(value)
        if kind == "number":
            return admit_number(branch, value)
        if kind == "string":
            return self._strings.admit(branch, value, loose=self._loose)
        if kind == "array":
            return self._admits_array(branch, value)
        return kind != "object" or self._admits_object(branch, value)

    def _admits_array(self, branch: Branch, value: list[Any]) -> bool:
        shape = array_shape(branch)
        if len(value) < shape.low or (shape.high is not None and len(value) > shape.high):
            return False
        repeats = len(set(map(identity, value))) < len(value)
        if repeats and shape.unique is not None:
            return False
        if not repeats and any(NOT_UNIQUE in node.schema for node in branch):
            return False
        for wanted in shape.wanted:
            goal, items = (wanted.node,), value[wanted.start :]
            if sum(self.admits(goal, item) for item in items) < wanted.low:
                return False
            if wanted.high is None:
                continue
            if sum(self._opposite().admits(goal, item) for item in items) > wanted.high:
                return False
        return all(self.admits(item_goal(branch, index), item) for index, item in enumerate(value))

    def _admits_object(self, branch: Branch, value: dict[str, Any]) -> bool:
        low, high = counts(branch, "minProperties", "maxProperties")
        if len(value) < low or (high is not None and len(value) > high):
            return False
        for node in branch:
            if not all(name in value for name in node.schema.get("required", ())):
                return False
            if SOME_MEMBER in node.schema and not self._has_that_member(node, value):
                return False
            cases = node.schema.get(CASES)
            if cases is not None and not any(self.branch_admits(case, value) for case in cases):
                return False
            if "propertyNames" in node.schema and not all(
                self.admits((node.child("propertyNames"),), name) for name in value
            ):
                return False
        return all(
            self.admits(member_goal(branch, name, self._strings.key_matches), member)
            for name, member in value.items()
        )

    def _has_that_member(self, node: Node, value: dict[str, Any]) -> bool:
        some = node.schema[SOME_MEMBER]
        return any(
            is_that_member(node, name, self._strings.key_matches)
            and (some.name is None or self.admits((some.name,), name))
            and self.admits((some.value,), member)
            for name, member in value.items()
        )

    def is_void(self, branch: Branch) -> bool:
        """Whether ``branch`` is certainly void; False if that is not obvious."""
        known = self._void.get(branch)
        if known is None:
            cuts, deep = self._cuts, len(self._open)
            known = self._is_void(branch)
            if known or deep == 0 or cuts == self._cuts:
                self._void[branch] = known
        return known

    def _is_void(self, branch: Branch) -> bool:
        kinds = kinds_of(branch)
        if not kinds:
            return True
        listed = [node for node in branch if "const" in node.schema or "enum" in node.schema]
        if listed:
            schema = min((node.schema for node in listed), key=lambda s: len(s.get("enum", ())))
            values = [schema["const"]] if "const" in schema else schema["enum"]
            if len(values) > _MOST_VALUES:
                return False
            return not any(self.branch_admits(branch, value) for value in values)
        return all(self._kind_is_void(branch, kind) for kind in kinds)

    def _kind_is_void(self, branch: Branch, kind: str) -> bool:
        if kind == "number":
            if any(map(integers_only, branch)) and any(
                NOT_INTEGER in node.schema for node in branch
            ):
                return True
            between = interval(branch)
            lower, upper = between.lower, between.upper
            if lower is None or upper is None:
                return False
            if lower.value == upper.value:
                return lower.exclusive or upper.exclusive
            return lower.value > upper.value
        if kind == "string":
            low, high = counts(branch, "minLength", "maxLength")
            return high is not None and low > high
        if kind == "array":
            shape = array_shape(branch)
            if shape.high is not None and shape.low > shape.high:
                return True
            if shape.unique is not None and any(NOT_UNIQUE in node.schema for node in branch):
                return True
            first = min(shape.low, len(shape.prefix) + 1)
            return any(self._goal_is_void(item_goal(branch, index)) for index in range(first))
        return kind == "object" and self._no_object(branch)

    def _no_object(self, branch: Branch) -> bool:
        required = {name for node in branch for name in node.schema.get("required", ())}
        low, high = counts(branch, "minProperties", "maxProperties")
        if high is not None and (low > high or len(required) > high):
            return True
        names = property_names(branch)
        if names and not all(self.admits(names, name) for name in required):
            return True
        asking = tuple(node for node in branch if not _ABOUT_MEMBERS.isdisjoint(node.schema))
        if all(ABOUT_OTHERS.isdisjoint(node.schema) for node in asking):
            required &= {name for node in asking for name in node.schema.get("properties", ())}
        return any(
            self._goal_is_void(member_goal(asking, name, self._strings.key_matches))
            for name in required
        )

    def _goal_is_void(self, goal: Goal) -> bool:
        if any(node.schema is False for node in goal):
            return True
        goal = tuple(node for node in goal if node.schema is not True)
        if not goal:
            return False
        if goal in self._open or len(self._open) >= _DEEPEST:
            self._cuts += 1
            return False
        self._open.add(goal)
        try:
            if len(goal) > 2 and self._has_listed_value(goal):
                return False
            return all(map(self.is_void, self.branches.of(goal)))
        except ConstraintTooComplex:
            return False
        finally:
            self._open.discard(goal)

    def _has_listed_value(self, goal: Goal) -> bool:
        """Whether a value that one subschema lists is admitted by each of the others.

        So a tag with many excluded values needs no branches of their combination.
        """
        own = [node for node in goal if node.aspect != NOT and isinstance(node.schema, dict)]
        lists = [node for node in own if isinstance(node.schema.get("enum"), list)]
        if not lists:
            return False
        source = min(lists, key=lambda node: len(node.schema["enum"]))
        if len(source.schema["enum"]) > _MOST_VALUES:
            return False
        return reduce(and_, (self._admitted(source, node) for node in goal)) != 0

    @cached_method
    def _admitted(self, source: Node, node: Node) -> int:
        """Bit set of those values listed by ``source`` that ``node`` admits."""
        values = enumerate(source.schema["enum"])
        return sum(1 << n for n, value in values if self.admits((node,), value))
