"""How deep expressions are nested: derivatives and shortest texts follow them by recursion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.constraint.derivatives import Derivatives
from app.constraint.expressions import Expression, ExpressionPool, Kind
from app.core.errors import ConstraintTooComplex

MAX_DEPTH = 120


def check_depth(pool: ExpressionPool) -> None:
    """Raises ``ConstraintTooComplex`` where following an expression would nest too many calls.

    Looked at are the expressions before the first byte of each (what a derivative goes through)
    and those on the way of a shortest text. Left recursion must be gone.
    """
    lengths = Derivatives(pool)
    lengths.measure()
    first, shortest = _Depth(pool, lengths, first=True), _Depth(pool, lengths, first=False)
    for expression in range(len(pool)):
        if first.of(expression) > MAX_DEPTH or shortest.of(expression) > MAX_DEPTH:
            raise ConstraintTooComplex(f"rules and groups nested deeper than {MAX_DEPTH}")


class _Depth:
    """The longest way down; found without recursion, memoised."""

    def __init__(self, pool: ExpressionPool, lengths: Derivatives, *, first: bool) -> None:
        self._pool = pool
        self._lengths = lengths
        self._first = first
        self._known: dict[Expression, int] = {}

    def of(self, expression: Expression) -> int:
        pending = [expression]
        while pending:
            here = pending[-1]
            below = self._first_below(here) if self._first else self._shortest_below(here)
            missing = [each for each in below if each not in self._known]
            if not missing:
                self._known[here] = 1 + max((self._known[each] for each in below), default=0)
                pending.pop()
            pending.extend(missing)
            if len(pending) > 100 * len(self._pool):
                raise AssertionError("left recursion is left")
        return self._known[expression]

    def _first_below(self, expression: Expression) -> Sequence[Expression]:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind is Kind.CONCATENATION:
            heads = [operand[0]]
            while pool.nullable[operand[0]] and pool.kinds[operand[1]] is Kind.CONCATENATION:
                operand = pool.operands[operand[1]]
                heads.append(operand[0])
            if pool.nullable[operand[0]]:
                heads.append(operand[1])
            return heads
        return self._inside(kind, operand)

    def _shortest_below(self, expression: Expression) -> Sequence[Expression]:
        """What ``Derivatives.shortest`` calls itself for, or goes on with."""
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if pool.nullable[expression]:
            return ()
        if kind is Kind.CONCATENATION:
            heads = [operand[0]]
            while pool.kinds[operand[1]] is Kind.CONCATENATION:
                operand = pool.operands[operand[1]]
                heads.append(operand[0])
            return [*heads, operand[1]]
        if kind is Kind.UNION:
            return (min(operand, key=self._lengths.length),)
        if kind in (Kind.INTERSECTION, Kind.COMPLEMENT):
            return ()
        return self._inside(kind, operand)

    def _inside(self, kind: Kind, operand: Any) -> Sequence[Expression]:
        if kind in (Kind.UNION, Kind.INTERSECTION):
            members: Sequence[Expression] = operand
            return members
        if kind is Kind.COMPLEMENT:
            return (operand,)
        if kind is Kind.REPETITION:
            return (operand[0],)
        if kind is Kind.RULE:
            body = self._pool.bodies[operand]
            assert body is not None
            return (body,)
        return ()
