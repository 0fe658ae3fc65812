"""Whether a value satisfies subschemas: picks out the values of ``enum`` and ``const``."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from app.constraint.schema.branches import Branch, Branches
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import is_number, refuse_unsupported
from app.constraint.schema.numeric import admit_number
from app.constraint.schema.objects import array_shape, item_goal, member_goal, object_shape
from app.constraint.schema.strings import Strings


def identity(value: Any) -> Hashable:
    """Equal exactly for values that JSON Schema calls equal (core, section 4.2.2)."""
    if isinstance(value, dict):
        return ("object", frozenset((name, identity(member)) for name, member in value.items()))
    if isinstance(value, list):
        return ("array", tuple(map(identity, value)))
    return (type_of(value), value)


def type_of(value: Any) -> str:
    """The JSON type of a parsed value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if is_number(value):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def admits_type(schema: dict[str, Any], value: Any) -> bool:
    """Whether the keyword ``type`` of ``schema``, if there, admits ``value``."""
    if "type" not in schema:
        return True
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = type_of(value)
    return kind in names or (kind == "number" and "integer" in names and value == int(value))


class Evaluation:
    """Checks values, with the same reading of keywords as the builder."""

    def __init__(self, branches: Branches, strings: Strings) -> None:
        self._branches = branches
        self._strings = strings
        self._identities: dict[Node, frozenset[Hashable]] = {}

    def admits(self, goal: Goal, value: Any) -> bool:
        return any(self.branch_admits(branch, value) for branch in self._branches.of(goal))

    def branch_admits(self, branch: Branch, value: Any) -> bool:
        kind = type_of(value)
        for node in branch:
            schema = node.schema
            if not admits_type(schema, value):
                return False
            if "const" in schema and identity(schema["const"]) != identity(value):
                return False
            if "enum" in schema and identity(value) not in self._listed(node):
                return False
        return self.admits_content(branch, kind, value)

    def _listed(self, node: Node) -> frozenset[Hashable]:
        known = self._identities.get(node)
        if known is None:
            known = self._identities[node] = frozenset(map(identity, node.schema["enum"]))
        return known

    def admits_content(self, branch: Branch, kind: str, value: Any) -> bool:
        """Whether the keywords for the value's own type admit it."""
        for node in branch:
            refuse_unsupported(node, kind)
        if kind == "number":
            return admit_number(branch, value)
        if kind == "string":
            return self._strings.admit(branch, value)
        if kind == "array":
            shape = array_shape(branch)
            if len(value) < shape.low or (shape.high is not None and len(value) > shape.high):
                return False
            return all(
                self.admits(item_goal(branch, index), item) for index, item in enumerate(value)
            )
        if kind == "object":
            members = object_shape(branch, close=False).members
            if not all(member.name in value for member in members if member.required):
                return False
            return all(
                self.admits(member_goal(branch, name), member) for name, member in value.items()
            )
        return True
