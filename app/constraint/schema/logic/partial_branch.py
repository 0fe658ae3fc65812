"""Branches in the making: what is still to be looked at, to be decided, and what is done.

In the example, with what is pending in brackets and open disjunctions in parentheses:

    [R]  ->  R [not S] (T | M | B)  ->  R [N] (T | M | B)  ->  R N (T | M | B)  ->  R N [O T]
                                                                                    R N [O M]
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from app.constraint.schema.document import Node
from app.constraint.schema.logic.negation import Alternative

Branch = tuple[Node, ...]
"""Subschemas whose own assertions hold together; () admits every value."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A node, and the nodes it was reached through inside one value."""

    node: Node
    above: frozenset[Node] = frozenset()
    annotates: bool = True
    """False below a negation: what it evaluates does not count for ``unevaluatedProperties``."""


@dataclass(frozen=True, slots=True, eq=False)
class Disjunction:
    """Alternatives of which one must hold; ``exclusive``: exactly one, each of one node."""

    name: tuple[Node, int]
    """The node that leaves it, and which of that node's disjunctions it is."""
    alternatives: list[Alternative]
    above: frozenset[Node]
    annotates: bool
    exclusive: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PartialBranch:
    """A branch in the making."""

    pending: tuple[Reached, ...]
    disjunctions: tuple[Disjunction, ...] = ()
    done: tuple[Reached, ...] = ()
    held: frozenset[Node] = frozenset()
    """Subschemas looked at, and their negations: what contradicts one of them is void."""

    @property
    def branch(self) -> Branch:
        return tuple([reached.node for reached in self.done])

    @property
    def meaning(self) -> Hashable:
        """Equal only for branches in the making that come to the same."""
        pending = tuple([reached.node for reached in self.pending])
        return pending, tuple([each.name for each in self.disjunctions]), self.branch

    def after_first(self) -> PartialBranch:
        """The same where the first of what is pending asks for nothing more."""
        return replace(self, pending=self.pending[1:])

    def deciding(
        self, chosen: Disjunction, alternative: Alternative, left: tuple[Disjunction, ...]
    ) -> PartialBranch:
        """With one alternative of ``chosen`` pending, and the disjunctions of ``left`` open."""
        pending = tuple([Reached(n, chosen.above, chosen.annotates) for n in alternative])
        return PartialBranch(pending, left, self.done, self.held)


def add(done: tuple[Reached, ...], reached: Reached) -> tuple[Reached, ...]:
    """``done`` and ``reached``; a node that was reached in two ways is kept once.

    It annotates for those above it on ways that do.
    """
    for index, other in enumerate(done):
        if other.node is reached.node:
            if other.annotates == reached.annotates:
                reached = Reached(other.node, other.above | reached.above, other.annotates)
            elif other.annotates:
                reached = other
            return (*done[:index], reached, *done[index + 1 :])
    return (*done, reached)
