"""From a goal to its branches: references followed, ``allOf`` and ``anyOf`` distributed.

A goal is a set of subschemas that hold together. Its branches are alternatives, each a set of
subschemas of which only their own assertions (``type``, ``properties``...) are left to enforce. So
``anyOf``, ``allOf`` and ``$ref`` beside each other and beside assertions are all exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.constraint.limits import Limits
from app.constraint.schema.document import Document, Goal, Node
from app.constraint.schema.keywords import (
    ENFORCED,
    FOR_ALL_TYPES,
    REFUSED,
    check_shapes,
    refuse_unsupported,
)
from app.core.errors import ConstraintTooComplex, InvalidSchema

Branch = tuple[Node, ...]
"""Subschemas whose own assertions hold together; () admits every value."""

_ASSERTIONS = frozenset(FOR_ALL_TYPES).union(*ENFORCED.values(), *REFUSED.values())


@dataclass(frozen=True, slots=True)
class _Open:
    """A branch in the making. ``pending`` are subschemas and those they were reached through."""

    pending: tuple[tuple[Node, frozenset[str]], ...]
    done: tuple[Node, ...]


class Branches:
    """Computes and remembers the branches of goals in one document."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self._document = document
        self._limits = limits
        self._known: dict[Goal, tuple[Branch, ...]] = {}
        self._checked: set[Node] = set()

    def of(self, goal: Goal) -> tuple[Branch, ...]:
        """The branches of ``goal``, without repetition, in the order of the schema.

        No branch at all means that nothing satisfies the goal.
        """
        known = self._known.get(goal)
        if known is None:
            known = self._known[goal] = self._expand(goal)
        return known

    def _expand(self, goal: Goal) -> tuple[Branch, ...]:
        finished: dict[Branch, None] = {}
        stack = [_Open(tuple((node, frozenset()) for node in goal), ())]
        while stack:
            branch = stack.pop()
            if not branch.pending:
                finished[branch.done] = None
            else:
                stack.extend(reversed(self._step(branch)))
            if len(finished) + len(stack) > self._limits.branches:
                raise ConstraintTooComplex(
                    f"more than {self._limits.branches} alternatives in one place of a schema"
                )
        return tuple(finished)

    def _step(self, branch: _Open) -> list[_Open]:
        """Work off the first pending subschema; the branches that this leads to."""
        (node, above), *rest = branch.pending
        if node.schema is True:
            return [_Open(tuple(rest), branch.done)]
        if node.schema is False:
            return []
        if node.pointer in above:
            raise InvalidSchema("a $ref leads back to itself", pointer=node.pointer)
        self._check(node)
        above |= {node.pointer}
        schema, together = node.schema, []
        if "$ref" in schema:
            together.append((self._document.resolve(node), above))
        for keyword in ("allOf", "oneOf"):  # a oneOf of one; others are refused
            for index in range(len(schema.get(keyword, ()))):
                together.append((node.child(keyword, index), above))
        done = branch.done
        if node not in done and not _ASSERTIONS.isdisjoint(schema):
            done = (*done, node)
        if "anyOf" not in schema:
            return [_Open((*together, *rest), done)]
        return [
            _Open(((node.child("anyOf", index), above), *together, *rest), done)
            for index in range(len(schema["anyOf"]))
        ]

    def _check(self, node: Node) -> None:
        if node not in self._checked:
            check_shapes(node)
            refuse_unsupported(node)
            self._checked.add(node)
