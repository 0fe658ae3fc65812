"""How deep expressions are nested: derivatives and shortest texts follow them by recursion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    _check(pool, lambda expression: _first_below(pool, expression))
    _check(pool, lambda expression: _shortest_below(pool, lengths, expression))


def _check(pool: ExpressionPool, below: Callable[[Expression], Below]) -> None:
    """Follow every expression the longest way down; without recursion."""
    known: dict[Expression, int] = {}
    for expression in range(len(pool)):
        pending = [expression]
        while pending:
            here = pending[-1]
            calls, goes_on = below(here)
            missing = [each for each in (*calls, *goes_on) if each not in known]
            if missing:
                pending.extend(missing)
                assert len(pending) < 100 * len(pool), "left recursion is left"
                continue
            called = max((known[each] for each in calls), default=0)
            known[here] = max(1 + called, *(known[each] for each in goes_on), 1)
            if known[here] > MAX_DEPTH:
                raise ConstraintTooComplex(f"rules and groups nested deeper than {MAX_DEPTH}")
            pending.pop()


def _first_below(pool: ExpressionPool, expression: Expression) -> Below:
    kind, operand = pool.kinds[expression], pool.operands[expression]
    if kind != Kind.CONCATENATION:
        return _inside(pool, expression), ()
    head, tail = operand
    if not pool.nullable[head]:
        return (head,), ()
    if pool.kinds[tail] == Kind.CONCATENATION:
        return (head,), (tail,)
    return (head, tail), ()


def _shortest_below(pool: ExpressionPool, lengths: Derivatives, expression: Expression) -> Below:
    kind, operand = pool.kinds[expression], pool.operands[expression]
    if pool.nullable[expression] or kind in (Kind.INTERSECTION, Kind.COMPLEMENT):
        return (), ()
    if kind == Kind.CONCATENATION:
        return operand[:1], operand[1:]
    if kind == Kind.UNION:
        return (), (min(operand, key=lengths.length),)
    if kind == Kind.RULE:
        return (), _inside(pool, expression)
    return _inside(pool, expression), ()


def _inside(pool: ExpressionPool, expression: Expression) -> Sequence[Expression]:
    return () if pool.kinds[expression] == Kind.DISTINCT else pool.parts(expression)
