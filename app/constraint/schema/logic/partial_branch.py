"""Branches in the making: what is still to be looked at, to be chosen, and what is done."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from app.constraint.schema.document import Node
from app.constraint.schema.logic.negation import Alternative

Branch = tuple[Node, ...]
"""Subschemas whose own assertions hold together; () admits every value."""


@dataclass(frozen=True, slots=True)
class Found:
    """A node, and the nodes it was reached through inside one value."""

    node: Node
    above: frozenset[Node] = frozenset()
    annotates: bool = True
    """False below a negation: what it evaluates does not count for ``unevaluatedProperties``."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Alternatives of which one must hold; ``exclusive``: exactly one, each of one node."""

    name: tuple[Node, int]
    """The node that leaves this choice, and which of its choices it is."""
    options: tuple[Alternative, ...]
    above: frozenset[Node]
    annotates: bool
    exclusive: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Opening:
    """A branch in the making."""

    pending: tuple[Found, ...]
    choices: tuple[Choice, ...] = ()
    done: tuple[Found, ...] = ()
    held: frozenset[Node] = frozenset()
    """Subschemas looked at, and their negations: what contradicts one of them is void."""

    @property
    def branch(self) -> Branch:
        return tuple([found.node for found in self.done])

    @property
    def meaning(self) -> Hashable:
        """Equal only for branches in the making that come to the same."""
        pending = tuple([found.node for found in self.pending])
        return (pending, tuple([choice.name for choice in self.choices]), self.branch)

    def after_first(self) -> Opening:
        """The same where the first of what is pending asks for nothing more."""
        return Opening(self.pending[1:], self.choices, self.done, self.held)

    def choosing(self, choice: Choice, option: Alternative, left: tuple[Choice, ...]) -> Opening:
        """With one option of ``choice``, which settles all but the choices that are ``left``."""
        pending = tuple([Found(node, choice.above, choice.annotates) for node in option])
        return Opening(pending, left, self.done, self.held)


def add(done: tuple[Found, ...], found: Found) -> tuple[Found, ...]:
    """``done`` and ``found``; a node reached in two ways is kept once.

    It annotates for those above it on ways that do.
    """
    for index, other in enumerate(done):
        if other.node is found.node:
            if other.annotates == found.annotates:
                found = Found(other.node, other.above | found.above, other.annotates)
            elif other.annotates:
                found = other
            return (*done[:index], found, *done[index + 1 :])
    return (*done, found)
