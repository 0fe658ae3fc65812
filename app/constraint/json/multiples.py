"""Multiples of a number, and numbers without the integers, the multiples or single values.

A number on the grid of ``places`` digits after the point is a count of its last place; it is a
multiple if ``step`` divides the count. The remainder of the digits so far is computed along an
answer, so the step may have any size.

Exclusions are languages of plain decimals without bounds, to be intersected with bounded ones.
Numbers that a reader may round to an integer, a multiple or an excluded value are left out as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from app.constraint.json.decimals import Decimals, ends_on_grid, first_on_grid, last_on_grid
from app.constraint.json.ranges import DIGITS, Bound, Interval, natural, signed, written
from app.constraint.language.expressions import ByteSet, Expression, ExpressionPool
from app.constraint.language.remainders import IN_FRACTION, Remainder
from app.constraint.limits import Limits

EXACT_DIGITS = 15
"""Different decimals of at most so many digits are different floats, printed with these digits."""
_ENUMERATED = 1_000
"""Maximum multiples that are listed instead of computed digit by digit."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Counts of the last of ``places`` digits after the point, and which of them are multiples."""

    places: int
    step: int
    low: int
    high: int


def integer(
    pool: ExpressionPool, between: Interval, limits: Limits, multiple_of: int = 1
) -> Expression:
    """The integers between the bounds that ``multiple_of`` divides.

    Without a bound there are ``limits.integer_digits`` digits, or one more than the other bound
    or ``multiple_of`` has.
    """

    def build() -> Expression:
        grid = integer_grid(between, limits, multiple_of)
        naturals = partial(_natural_multiples, pool, factor=multiple_of)
        return signed(pool, grid.low, grid.high, naturals)

    return pool.once(("integer", between, limits.integer_digits, multiple_of), build)


def multiples(
    pool: ExpressionPool, between: Interval, limits: Limits, multiple_of: Fraction
) -> Expression:
    """The plain decimals between the bounds that are multiples, exactly and as floats.

    They have at most as many decimal places as ``multiple_of``, with optional trailing zeros, and
    at most ``EXACT_DIGITS`` digits unless ``multiple_of`` is a power of ten.
    """
    grid = decimal_grid(between, limits, multiple_of)
    whole = grid.step == 1
    naturals = (Decimals(pool, grid.places) if whole else Remainders(pool, grid)).between
    return signed(pool, grid.low, grid.high, naturals)


def integer_grid(between: Interval, limits: Limits, multiple_of: int) -> Grid:
    """Integers between the bounds."""
    digits = max(limits.integer_digits, len(str(multiple_of)) + 1)
    return Grid(0, multiple_of, *between.integers(digits))


def decimal_grid(
    between: Interval, limits: Limits, multiple_of: Fraction, least_places: int = 0
) -> Grid:
    """The coarsest grid with all multiples, of at most ``limits.fraction_digits`` places."""
    places = min(max(decimal_places(multiple_of), least_places), limits.fraction_digits)
    numerator, denominator = multiple_of.numerator * 10**places, multiple_of.denominator
    step = math.lcm(numerator, denominator) // denominator
    low, high = ends_on_grid(between, places, limits)
    if step > 1:
        largest = 10**EXACT_DIGITS - 1
        low, high = max(low, -largest), min(high, largest)
    return Grid(places, step, low, high)


def decimal_places(value: Fraction) -> int:
    """Digits after the point of a decimal."""
    places = 0
    while 10**places % value.denominator:
        places += 1
    return places


def _natural_multiples(pool: ExpressionPool, first: int, last: int, *, factor: int) -> Expression:
    """The multiples of ``factor`` among the natural numbers from ``first`` to ``last``."""
    first += -first % factor
    if factor % 10 == 0 and first > 0:
        tenths = _natural_multiples(pool, first // 10, last // 10, factor=factor // 10)
        return pool.concatenate(tenths, pool.literal(b"0"))
    if factor % 10 == 0:
        zero = pool.literal(b"0")
        return pool.union((zero, _natural_multiples(pool, factor, last, factor=factor)))
    if factor == 1:
        return natural(pool, first, last)
    if (last - first) // factor < _ENUMERATED:
        return pool.one_of(b"%d" % n for n in range(first, last + 1, factor))
    return Remainders(pool, Grid(0, factor, first, last)).between(first, last)


class Remainders:
    """Decimals with a count on the grid that ``grid.step`` divides, or does not if ``divisible`` is
    False. At most ``grid.places`` places, of which trailing zeros may be left out.

    Digits along the ends of a range are expanded; others are a ``Remainder``.
    """

    def __init__(self, pool: ExpressionPool, grid: Grid, *, divisible: bool = True) -> None:
        self.pool = pool
        self.grid = grid
        self.divisible = divisible

    def between(self, first: int, last: int) -> Expression:
        """From ``first`` to ``last``, natural counts of the last place."""
        shortest = self.grid.places + 1
        low, high = str(first).rjust(shortest, "0"), str(last).rjust(shortest, "0")
        if first > last:
            return self.pool.empty
        options = []
        if low[0] == "0":  # before the point only 0
            options.append(self._tail(shortest, 0, low, min(high, "0" + "9" * (shortest - 1))))
            low = "1" + "0" * (shortest - 1)
        if int(high) < int(low):
            return self.pool.union(options)
        fewest, most = len(low), len(high)
        if low.strip("0") != "1":
            options.append(self._tail(fewest, 0, low, high if most == fewest else "9" * fewest))
            fewest += 1
        if fewest <= most and high.strip("9"):
            options.append(self._tail(most, 0, "1" + "0" * (most - 1), high))
            most -= 1
        if fewest <= most:
            rests = (self._rest(fewest - 1, most - 1, digit) for digit in range(1, 10))
            options.append(self._any_digit(rests, 1))
        return self.pool.union(options)

    def _rest(self, least: int, most: int, remainder: int) -> Expression:
        """From ``least`` to ``most`` further digits, places included."""
        places, step = self.grid.places, self.grid.step
        bounds = (
            (least - places, most - places, places) if most >= places else (IN_FRACTION, 0, most)
        )
        return self.pool.remainder(Remainder(step, self.divisible, remainder % step, *bounds))

    def _tail(self, left: int, remainder: int, low: str | None, high: str | None) -> Expression:
        """The last ``left`` digits, with the point; None for a bound that no longer matters."""
        low = low if low is not None and low.strip("0") else None
        high = high if high is not None and high.strip("9") else None
        if low is None and high is None:
            return self._rest(left, left, remainder)
        pool, places, step = self.pool, self.grid.places, self.grid.step
        whole = remainder * 10**left % step == 0
        may_end = whole == self.divisible and low is None
        found = pool.epsilon if may_end else pool.empty
        if left > 0:
            first, last = int(low[0]) if low else 0, int(high[0]) if high else 9
            rests = []
            for digit in range(first, last + 1):
                below = low[1:] if low is not None and digit == first else None
                above = high[1:] if high is not None and digit == last else None
                rests.append(self._tail(left - 1, 10 * remainder + digit, below, above))
            more = self._any_digit(rests, first)
            if left == places:
                more = pool.concatenate(pool.literal(b"."), more)
            found = pool.union((found, more)) if left <= places else more
        return found

    def _any_digit(self, rests: Iterable[Expression], first: int) -> Expression:
        """The digits from ``first`` on, each with its rest."""
        by_rest: dict[Expression, ByteSet] = {}
        for digit, rest in enumerate(rests, 0x30 + first):
            by_rest[rest] = by_rest.get(rest, 0) | 1 << digit
        pool = self.pool
        return pool.union([pool.concatenate(pool.byte(b), rest) for rest, b in by_rest.items()])


_MAGNITUDES = (0, 1, 4, 8, 12, EXACT_DIGITS)
"""Digits before the point that bound classes of numbers. Each class keeps one distance from
excluded values."""
_ROUNDINGS = 4
"""That distance in units of a float's last place: one for the number, one for the excluded value,
and two for a reader that divides."""


def non_multiples(
    pool: ExpressionPool, between: Interval, limits: Limits, factor: int | Fraction
) -> Expression:
    """Numbers that are not multiples of ``factor``: for an ``int`` only integers, else decimals.

    The bounds apply only to those with no more places than ``factor``, which have at most
    ``EXACT_DIGITS`` digits.
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
    return pool.union((near, off_grid(pool, decimal_places(factor), limits)))


def spellings(
    pool: ExpressionPool, values: Collection[int | float], limits: Limits, *, integers_only: bool
) -> Expression:
    """Every plain decimal, or integer, that some reader takes for one of ``values``."""
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


def off_grid(pool: ExpressionPool, places: int, limits: Limits) -> Expression:
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
