"""Whether a value satisfies subschemas: picks out the values of ``enum`` and ``const``.

In the example ``emptiness`` asks it about the member ``kind``: "beer" is not in the ``enum`` of R.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from app.constraint.cached_method import cached_method
from app.constraint.schema.arrays import array_shape, item_goal
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import (
    CASES,
    NOT_ENUM,
    NOT_UNIQUE,
    SOME_MEMBER,
    counts,
    identity,
    type_of,
    types_of,
)
from app.constraint.schema.logic.branches import Branches
from app.constraint.schema.logic.partial_branch import Branch
from app.constraint.schema.numeric import admit_number
from app.constraint.schema.objects import is_that_member, member_goal
from app.constraint.schema.strings import Strings


def admits_type(node: Node, value: Any) -> bool:
    """Whether the keyword ``type`` of ``node``, if there, admits ``value``."""
    names = types_of(node)
    if names is None:
        return True
    kind = type_of(value)
    return kind in names or (kind == "number" and "integer" in names and value == int(value))


class Evaluation:
    """Checks values, with the same reading of keywords as the builder.

    Says whether a value surely is valid or, ``loosely``, whether some validator may take it for
    valid; ``branches`` must be loose then, too. ``opposite`` gives the other one of the two.
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
        kind = type_of(value)
        if kind == "number":
            return admit_number(branch, value)
        if kind == "string":
            return self._strings.admit(branch, value, loose=self._loose)
        if kind == "array":
            return self._admits_array(branch, value)
        if kind == "object":
            return self._admits_object(branch, value)
        return True

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
        matches = self._strings.key_matches
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
            self.admits(member_goal(branch, name, matches), member)
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
