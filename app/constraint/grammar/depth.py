"""How deep expressions are nested: derivatives and shortest texts follow them by recursion."""

from __future__ import annotations

from collections.abc import Sequence

from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import Expression, ExpressionPool, Kind
from app.core.errors import ConstraintTooComplex

MAX_DEPTH = 120

Below = tuple[Sequence[Expression], Sequence[Expression]]
"""What following an expression calls itself for, and what it goes on with in the same call."""


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
            calls, goes_on = self._first_below(here) if self._first else self._shortest_below(here)
            missing = [each for each in (*calls, *goes_on) if each not in self._known]
            if missing:
                pending.extend(missing)
                assert len(pending) < 100 * len(self._pool), "left recursion is left"
                continue
            called = max((self._known[each] for each in calls), default=0)
            self._known[here] = max(1 + called, *(self._known[each] for each in goes_on), 1)
            pending.pop()
        return self._known[expression]

    def _first_below(self, expression: Expression) -> Below:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.CONCATENATION:
            head, tail = operand
            if not pool.nullable[head]:
                return (head,), ()
            if pool.kinds[tail] == Kind.CONCATENATION:
                return (head,), (tail,)
            return (head, tail), ()
        return self._inside(expression), ()

    def _shortest_below(self, expression: Expression) -> Below:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if pool.nullable[expression] or kind in (Kind.INTERSECTION, Kind.COMPLEMENT):
            return (), ()
        if kind == Kind.CONCATENATION:
            return operand[:1], operand[1:]
        if kind == Kind.UNION:
            return (), (min(operand, key=self._lengths.length),)
        if kind == Kind.RULE:
            return (), self._inside(expression)
        return self._inside(expression), ()

    def _inside(self, expression: Expression) -> Sequence[Expression]:
        pool = self._pool
        return () if pool.kinds[expression] == Kind.DISTINCT else pool.parts(expression)
