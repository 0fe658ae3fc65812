"""Numbers in one spelling each, as far as a reader's floats tell them apart."""

from __future__ import annotations

from app.constraint.json.numbers.ranges import DIGITS
from app.constraint.language.expressions import Expression, ExpressionPool, byte_set

_DIGITS_BEFORE = 8
_DIGITS_BEHIND = 7
"""Of a number with a fraction: 15 digits in all, as many as every float keeps apart."""


def plain_number(pool: ExpressionPool, numbers: Expression) -> Expression:
    """Those of ``numbers`` that are written plainly: no exponent, no zero that says nothing.

    Two of them are equal exactly where their texts are. With a fraction they have eight digits
    before the point and seven behind it at most: longer ones may be one float.
    """
    return pool.intersect((numbers, pool.once("numbers in one spelling", lambda: _plain(pool))))


def _plain(pool: ExpressionPool) -> Expression:
    digit, first = pool.byte(DIGITS), pool.byte(byte_set(b"123456789"))
    zero, point, sign = pool.literal(b"0"), pool.literal(b"."), pool.literal(b"-")
    natural = pool.concatenate(first, pool.repeat(digit))
    before = pool.union((zero, pool.concatenate(first, pool.repeat(digit, 0, _DIGITS_BEFORE - 1))))
    behind = pool.concatenate(pool.repeat(digit, 0, _DIGITS_BEHIND - 1), first)
    fraction = pool.concatenate(before, point, behind)
    return pool.union(
        (zero, pool.concatenate(pool.optional(sign), pool.union((natural, fraction))))
    )
