"""``oneOf``: each alternative together with the negations of those that it may overlap.

In the example T, M and B overlap in no object, and in all other types wholly: so their alternatives
beside R are  (O, T), (O, M), (O, B)  and no negation is needed. Were ``kind`` not required, an
object without it would satisfy all three, and the first one would be  (O, T, not M, not B).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from app.constraint.cached_method import cached_method
from app.constraint.limits import Limits
from app.constraint.schema.document import Document, Goal, Node
from app.constraint.schema.keywords import TYPES
from app.constraint.schema.logic.disjointness import Summaries, Summary
from app.constraint.schema.logic.negation import Alternative, negated
from app.constraint.schema.logic.partial_branch import Branch
from app.core.errors import UnsupportedSchema

OWN = "own "
"""What the aspects begin with of subschemas of which only their own assertions count."""


class ExactlyOne:
    """Works out the alternatives of ``oneOf`` in one document.

    ``may_overlap`` says whether any validator may take some value to satisfy a goal.
    """

    def __init__(
        self,
        document: Document,
        summaries: Summaries,
        limits: Limits,
        may_overlap: Callable[[Goal], bool],
    ) -> None:
        self._document = document
        self._summaries = summaries
        self._limits = limits
        self._may_overlap = cache(may_overlap)

    def of(self, branch: Branch, children: Goal) -> list[Alternative]:
        """Exactly one of ``children`` beside ``branch``: it, and the negations of those that it
        may overlap there."""
        shared = self._shared_kinds(children)
        common = tuple([node.made(OWN + node.aspect, node.schema) for node in branch])
        context = (*common, *shared)
        beside = self._summaries.beside(context)
        others: list[list[Node]] = [[] for _ in children]
        for left, right in self._maybe_overlapping(children):
            if self._overlap(context, beside, children[left], children[right]):
                others[left].append(negated(children[right]))
                others[right].append(negated(children[left]))
        return [(*shared, child, *apart) for child, apart in zip(children, others, strict=True)]

    @cached_method
    def _shared_kinds(self, children: Goal) -> Goal:
        """That a value is of none of the types that two ``children`` and more admit wholly."""
        whole = [kind for child in children for kind in self._summaries.of(child).whole]
        kinds = [kind for kind in TYPES if whole.count(kind) < 2]
        if len(kinds) == len(TYPES):
            return ()
        return (children[0].made("of no type that two admit", {"type": kinds}),)

    @cached_method
    def _maybe_overlapping(self, children: Goal) -> list[tuple[int, int]]:
        """The pairs that are not plainly disjoint whatever holds beside them."""
        beside = self._summaries.beside(self._shared_kinds(children))
        pairs = [
            (left, right)
            for right, child in enumerate(children)
            for left, other in enumerate(children[:right])
            if not self._summaries.are_disjoint(beside, other, child)
        ]
        if len(pairs) > self._limits.overlaps:
            parent = children[0].pointer.rpartition("/")[0]
            reason = "its alternatives overlap too much"
            raise UnsupportedSchema("oneOf", parent, reason)
        return pairs

    def _overlap(self, context: Goal, beside: Summary, left: Node, right: Node) -> bool:
        """Whether some value may satisfy both; True where that is not plain.

        What only a keyword tells apart that the draft does not know overlaps for its validators.
        """
        if self._summaries.are_disjoint(beside, left, right):
            return False
        if self._document.says_unknown:
            return True
        return self._may_overlap((*context, left, right))
