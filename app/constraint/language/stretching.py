"""Strings of an expression that are a little longer than its shortest one, by its form alone.

A pattern with a ``minLength`` wants them: a search would go through every length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.constraint.language.expressions import INFINITE, Expression, Kind

if TYPE_CHECKING:
    from app.constraint.language.derivatives import Derivatives

_MOST_MEMBERS = 8
"""Members of a union that are tried."""


def stretched(derivatives: Derivatives, expression: Expression, extra: int) -> tuple[bytes, int]:
    """A string of ``expression`` that has up to ``extra`` bytes more than a shortest one.

    With how many of them are missing.
    """
    pool = derivatives.pool
    kind, operand = pool.kinds[expression], pool.operands[expression]
    if extra and kind == Kind.CONCATENATION:
        parts = []
        for piece in pool.pieces(expression):
            part, extra = stretched(derivatives, piece, extra)
            parts.append(part)
        return b"".join(parts), extra
    if extra and kind == Kind.REPETITION:
        inner, low, high = operand
        size = derivatives.length(inner)
        if 0 < size < INFINITE:
            more = extra // size if high is None else min(extra // size, high - low)
            return derivatives.shortest(inner) * (low + more), extra - more * size
    if extra and kind == Kind.UNION:
        shortest = derivatives.length(expression)
        for member in sorted(operand, key=derivatives.length)[:_MOST_MEMBERS]:
            longer = derivatives.length(member) - shortest
            if longer <= extra:
                text, missing = stretched(derivatives, member, extra - longer)
                if not missing:
                    return text, 0
    return derivatives.shortest(expression), extra


def is_elastic(
    derivatives: Derivatives, expression: Expression, most: int, letters: bytes, star: Expression
) -> bool:
    """Whether a shortest string can grow by any number of ``letters`` up to ``most``.

    ``star`` holds all strings of ``letters``.
    """
    pool = derivatives.pool
    kind, operand = pool.kinds[expression], pool.operands[expression]
    if kind == Kind.INTERSECTION and star in operand and len(operand) == 2:
        expression = operand[0] if operand[1] == star else operand[1]
        return is_elastic(derivatives, expression, most, letters, star)
    if kind == Kind.CONCATENATION:
        return any(
            is_elastic(derivatives, part, most, letters, star) for part in pool.pieces(expression)
        )
    if kind == Kind.UNION:
        return is_elastic(derivatives, min(operand, key=derivatives.length), most, letters, star)
    if kind != Kind.REPETITION:
        return False
    inner, low, high = operand
    if derivatives.length(inner) != 1 or (high is not None and high - low < most):
        return False
    return derivatives.shortest(inner) in letters
