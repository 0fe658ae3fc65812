"""Limits on the cost of a grammar: the nesting of its expressions, and its ambiguity."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.constraint.language.derivatives import Derivatives, measured, preferred_byte
from app.constraint.language.expressions import Expression, ExpressionPool, Kind
from app.constraint.language.rows import TooMuchWork
from app.core.errors import ConstraintTooComplex

MAX_DEPTH = 120

_PROBED_BYTES = 64
_MOST_READINGS = 256
"""Maximum parses of the probed text. A state costs as much, and a mask has many states."""
_FIRST_BYTES = 4
_GROWTH = 8
"""The maximum is this many times the parses after the first bytes, if that is more."""
_MOST_WORK = 300_000
"""Steps of work for one grammar."""

Below = tuple[Sequence[Expression], Sequence[Expression]]
"""Expressions that following one recurses into, and those it continues with in the same call."""


def check_grammars(pool: ExpressionPool) -> None:
    """Raises ``ConstraintTooComplex`` where following an expression would nest too many calls, or
    where a grammar is so ambiguous that each character adds several ways to go on.

    Derivatives and shortest texts follow expressions by recursion: looked at are those before the
    first byte of each and those on the way of a shortest text. Left recursion must be gone.
    """
    derivatives = measured(pool)
    _check(pool, lambda expression: _first_below(pool, expression))
    _check(pool, lambda expression: _shortest_below(pool, derivatives, expression))
    for grammar in pool.grammars:
        _check_readings(derivatives, grammar)


def _check_readings(derivatives: Derivatives, grammar: Expression) -> None:
    """Walk along one text, to the next state with most parses, and among these to a new one."""
    pool, here, text = derivatives.pool, grammar, b""
    seen = {here}
    most = _MOST_READINGS
    derivatives.allow(_MOST_WORK)
    for position in range(_PROBED_BYTES):
        try:
            row = derivatives.live_row(here)
            if not row:
                return
            bits, here = max(row, key=lambda way: (_readings(pool, way[1]), way[1] not in seen))
            readings = _readings(pool, here)
            if position < _FIRST_BYTES:  # there may be many to begin with
                most = max(most, _GROWTH * readings)
        except TooMuchWork:
            readings = most + 1
        if readings > most:
            raise ConstraintTooComplex(
                f"an ambiguous grammar: after {text.decode(errors='replace')!r} it has more than "
                f"{most} parses"
            )
        text += bytes([preferred_byte(bits)])
        seen.add(here)


def _readings(pool: ExpressionPool, expression: Expression) -> int:
    """Number of parses of the text so far, by what may follow them."""
    if pool.kinds[expression] != Kind.UNION or pool.regular[expression]:
        return 1
    members: Sequence[Expression] = pool.operands[expression]
    return sum(_readings(pool, member) for member in members)


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
    return ((head,), (tail,)) if pool.kinds[tail] == Kind.CONCATENATION else ((head, tail), ())


def _shortest_below(pool: ExpressionPool, lengths: Derivatives, expression: Expression) -> Below:
    kind, operand = pool.kinds[expression], pool.operands[expression]
    if pool.nullable[expression] or kind in (Kind.INTERSECTION, Kind.COMPLEMENT):
        return (), ()
    if kind == Kind.CONCATENATION:
        return operand[:1], operand[1:]
    if kind == Kind.UNION:
        return (), (min(operand, key=lengths.length),)
    inside = _inside(pool, expression)
    return ((), inside) if kind == Kind.RULE else (inside, ())


def _inside(pool: ExpressionPool, expression: Expression) -> Sequence[Expression]:
    return () if pool.kinds[expression] in (Kind.DISTINCT, Kind.CASES) else pool.parts(expression)
