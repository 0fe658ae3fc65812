"""Limits on the cost of a grammar: the nesting of its expressions, and its ambiguity."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.constraint.language.derivatives import Derivatives, measured, preferred_byte
from app.constraint.language.expressions import Expression, ExpressionPool, Kind
from app.constraint.language.rows import TooMuchWork
from app.core.errors import ConstraintTooComplex

MAX_DEPTH = 120

_PROBED_BYTES = 64
_MOST_PARSES = 256
"""Maximum parses of the probed text. The cost of a state is proportional to them."""
_FIRST_BYTES = 4
_GROWTH = 8
"""The maximum is at least this many times the parses after the first bytes."""
_MOST_WORK = 300_000
"""Steps of work for one grammar."""

Below = tuple[Sequence[Expression], Sequence[Expression]]
"""Expressions that a traversal of one recurses into, and those that it continues with in a loop."""


def check_grammars(pool: ExpressionPool) -> None:
    """Raises ``ConstraintTooComplex`` if expressions nest too deeply, or a grammar is so ambiguous
    that each character adds several parses.

    Derivatives recurse into the expressions before the first byte, shortest texts into those of a
    shortest text. There must be no left recursion.
    """
    derivatives = measured(pool)
    _check(pool, lambda expression: _first_below(pool, expression))
    _check(pool, lambda expression: _shortest_below(pool, derivatives, expression))
    for grammar in pool.grammars:
        _check_ambiguity(derivatives, grammar)


def _check_ambiguity(derivatives: Derivatives, grammar: Expression) -> None:
    """Walk along one text, always to a state with most parses, if possible a new one."""
    pool, here, text = derivatives.pool, grammar, b""
    seen = {here}
    most = _MOST_PARSES
    derivatives.allow(_MOST_WORK)
    for position in range(_PROBED_BYTES):
        try:
            row = derivatives.live_row(here)
            if not row:
                return
            bits, here = max(row, key=lambda each: (_parses(pool, each[1]), each[1] not in seen))
            parses = _parses(pool, here)
            if position < _FIRST_BYTES:  # there may be many to begin with
                most = max(most, _GROWTH * parses)
        except TooMuchWork:
            parses = most + 1
        if parses > most:
            raise ConstraintTooComplex(
                f"an ambiguous grammar: after {text.decode(errors='replace')!r} it has more than "
                f"{most} parses"
            )
        text += bytes([preferred_byte(bits)])
        seen.add(here)


def _parses(pool: ExpressionPool, expression: Expression) -> int:
    """Number of parses of the text so far: those with different rests."""
    if pool.kinds[expression] != Kind.UNION or pool.regular[expression]:
        return 1
    members: Sequence[Expression] = pool.operands[expression]
    return sum(_parses(pool, member) for member in members)


def _check(pool: ExpressionPool, below: Callable[[Expression], Below]) -> None:
    """Check the depth of every expression; without recursion."""
    known: dict[Expression, int] = {}
    for expression in range(len(pool)):
        pending = [expression]
        while pending:
            here = pending[-1]
            calls, continues = below(here)
            missing = [each for each in (*calls, *continues) if each not in known]
            if missing:
                pending.extend(missing)
                assert len(pending) < 100 * len(pool), "left recursion is left"
                continue
            called = max((known[each] for each in calls), default=0)
            known[here] = max(1 + called, *(known[each] for each in continues), 1)
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
