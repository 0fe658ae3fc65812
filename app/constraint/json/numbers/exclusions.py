"""What is left of the numbers without the integers, the multiples or single values.

These are languages of plain decimals without regard to bounds, to be intersected with those that
have them. A number that a reader's rounding could make an integer, a multiple or a value to be left
out is left out as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from fractions import Fraction

from app.constraint.json.numbers.decimals import Decimals, first_on_grid, last_on_grid
from app.constraint.json.numbers.multiples import (
    EXACT_DIGITS,
    Remainders,
    decimal_grid,
    decimal_places,
    integer_grid,
)
from app.constraint.json.numbers.ranges import DIGITS, Bound, Interval, natural, signed, written
from app.constraint.language.expressions import Expression, ExpressionPool
from app.constraint.limits import Limits

_MAGNITUDES = (0, 1, 4, 8, 12, EXACT_DIGITS)
"""Digits before the point, up to which numbers are a class. All of a class keep one distance from
what they must not be taken for."""
_ROUNDINGS = 4
"""That distance in units of a float's last place: one for the number, one for what it must not be
taken for, and two for a reader who divides."""


def non_integers(pool: ExpressionPool, limits: Limits) -> Expression:
    """Numbers with a fraction that is not 0, whichever way they are read."""
    return _beyond(pool, 0, limits)


def non_multiples(
    pool: ExpressionPool, between: Interval, limits: Limits, factor: int | Fraction
) -> Expression:
    """Numbers that are not multiples of ``factor``: for an ``int`` only integers, else decimals.

    The bounds are met by those that have no more places than ``factor``, which are
    ``EXACT_DIGITS`` at most.
    """
    if isinstance(factor, int):
        grid = integer_grid(between, limits, factor)
    else:
        grid = decimal_grid(between, limits, factor, least_places=1)
    near = pool.empty
    if grid.step > 1:
        remainders = Remainders(pool, grid, divisible=False)
        near = signed(pool, grid.low, grid.high, remainders.between)
    if isinstance(factor, int):
        return near
    return pool.union((near, _beyond(pool, decimal_places(factor), limits)))


def spellings(
    pool: ExpressionPool, values: Collection[int | float], limits: Limits, *, integers_only: bool
) -> Expression:
    """Every plain decimal, or integer, that is one of ``values`` to some reader."""
    if integers_only:
        whole = [value for value in values if value == int(value)]
        return pool.one_of(b"%d" % int(n) for value in whole for n in (value, written(value)))
    decimals = Decimals(pool, limits.fraction_digits)
    options = []
    for value in values:
        bound = Bound(value, exclusive=True)
        low = last_on_grid(bound, decimals.scale) + 1
        high = first_on_grid(bound, decimals.scale) - 1
        options.append(signed(pool, low, high, decimals.between))
    return pool.union(options)


def _beyond(pool: ExpressionPool, places: int, limits: Limits) -> Expression:
    """Numbers that are not on the grid of ``places``, not even after rounding."""
    more = limits.fraction_digits - places
    if more <= 0:
        return pool.empty
    decimals, free = Decimals(pool, more), pool.repeat(pool.byte(DIGITS), places, places)
    options = []
    for shorter, longest in zip((-1, *_MAGNITUDES), _MAGNITUDES, strict=False):
        largest = math.nextafter(10**longest, 0)
        distance = math.ceil(_ROUNDINGS * Fraction(math.ulp(largest)) * 10**limits.fraction_digits)
        if 2 * distance <= decimals.scale:
            whole = natural(pool, 10**shorter if shorter >= 0 else 0, 10**longest - 1)
            rest = decimals.digits_between(distance, decimals.scale - distance)
            options.append(pool.concatenate(whole, pool.literal(b"."), free, rest))
    sign = pool.optional(pool.literal(b"-"))
    return pool.concatenate(sign, pool.union(options))
