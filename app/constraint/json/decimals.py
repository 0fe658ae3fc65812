"""Numbers that may have a fraction, between bounds.

A bounded ``number`` is a plain decimal. Readers round it to a float before they compare it with the
bound, so a bound is moved to the nearest decimal that satisfies it both exactly and after rounding;
rounding is monotone, so all decimals beyond satisfy it as well.

Exponents are allowed far from bounds: in any form without bounds, else in the forms of
``json.dumps`` and JavaScript for numbers too close to zero or too large for plain digits.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction

from app.constraint.json.ranges import (
    DIGITS,
    Bound,
    Interval,
    closed,
    digits,
    natural,
    signed,
    written,
)
from app.constraint.language.expressions import Expression, ExpressionPool, byte_set
from app.constraint.limits import Limits

_FLOATS_SKIP_INTEGERS = 1 << 53
_PLAIN_FROM = 1e-4
"""Python writes smaller numbers with an exponent."""
_PLAIN_BELOW_POWER = 16
"""Python writes numbers from 10 to this power on with an exponent."""
_DIGITS_BEFORE = 8
_DIGITS_BEHIND = 7
"""Digits of a number with a fraction: 15 in all, so that different ones are different floats."""


def number(
    pool: ExpressionPool, between: Interval, limits: Limits, *, plain: bool = False
) -> Expression:
    """The finite decimal numbers between the bounds; ``empty`` if the digits do not reach any.

    Without a bound there are ``limits.integer_digits`` digits before the point, or one more than
    the other bound has. ``plain`` leaves out exponents.
    """
    if between == Interval() and not plain:
        name = ("any number", limits.integer_digits, limits.fraction_digits)
        return pool.once(name, lambda: _any_number(pool, limits))
    decimals = Decimals(pool, limits.fraction_digits)
    low, high = ends_on_grid(between, limits.fraction_digits, limits)
    ceiling = int(sys.float_info.max) * decimals.scale
    plainly = signed(pool, max(low, -ceiling), min(high, ceiling), decimals.between)
    return plainly if plain else pool.union((plainly, *_exponential(pool, between, limits)))


def ends_on_grid(between: Interval, places: int, limits: Limits) -> tuple[int, int]:
    """The first and the last number of ``places`` digits after the point, as counts of the last."""
    lower, upper, scale = between.lower, between.upper, 10**places
    low = None if lower is None else first_on_grid(lower, scale)
    high = None if upper is None else last_on_grid(upper, scale)
    return closed(low, high, limits.integer_digits + places)


def first_on_grid(bound: Bound, scale: int) -> int:
    """The smallest n with n/scale above a lower bound, for every way in which readers compare them.

    As decimals, with the bound as it is written; as floats; and, beyond 2**53, as an integer and
    the exact value of a float, as Python does.
    """
    exact = Fraction(bound.value)
    as_written = written(bound.value)
    large = abs(exact) >= _FLOATS_SKIP_INTEGERS

    def admitted(n: int) -> bool:
        decimal = Fraction(n, scale)
        if not bound.is_below(decimal, as_written):
            return False
        if large and not bound.is_below(decimal, exact):
            return False
        try:
            return bound.is_below(n / scale, bound.value)
        except OverflowError:
            return n > 0

    refused, step = math.floor(min(exact, as_written) * scale) - 1, 1
    while not admitted(refused + step):
        step *= 2
    while step > 1:
        step //= 2
        if not admitted(refused + step):
            refused += step
    return refused + 1


def last_on_grid(bound: Bound, scale: int) -> int:
    """The largest n with n/scale below an upper bound, by symmetry."""
    return -first_on_grid(Bound(-bound.value, bound.exclusive), scale)


class Decimals:
    """Decimals with up to ``places`` digits after the point, as counts of the last place."""

    def __init__(self, pool: ExpressionPool, places: int) -> None:
        self.pool = pool
        self.places = places
        self.scale: int = 10**places

    def between(self, first: int, last: int) -> Expression:
        """From ``first / scale`` to ``last / scale``, both natural; ``empty`` if reversed."""
        if first > last:
            return self.pool.empty
        pool = self.pool
        if not self.places:
            return natural(pool, first, last)
        low, low_places = divmod(first, self.scale)
        high, high_places = divmod(last, self.scale)
        if low == high:
            return self._with_fraction(low, self._padded(low_places), self._padded(high_places))
        options = []
        if low_places > 0:
            options.append(self._with_fraction(low, self._padded(low_places), None))
            low += 1
        if high_places < self.scale - 1:
            options.append(self._with_fraction(high, None, self._padded(high_places)))
            high -= 1
        options.append(pool.concatenate(natural(pool, low, high), self._fraction(None, None)))
        return pool.union(options)

    def digits_between(self, first: int, last: int) -> Expression:
        """Only the digits after the point, one or more, of fractions that are not 0."""
        assert 0 < first <= last < self.scale
        return self._places(0, self._padded(first), self._padded(last))

    def _padded(self, places: int) -> str:
        return str(places).rjust(self.places, "0")

    def _with_fraction(self, whole: int, low: str | None, high: str | None) -> Expression:
        return self.pool.concatenate(self.pool.literal(b"%d" % whole), self._fraction(low, high))

    def _fraction(self, low: str | None, high: str | None) -> Expression:
        """Fractions from ``low`` to ``high`` (None: no bound), which may be missing if 0 is one."""
        pool = self.pool
        some = pool.concatenate(pool.literal(b"."), self._places(0, low, high))
        return pool.optional(some) if low is None or not int(low) else some

    def _places(self, place: int, low: str | None, high: str | None) -> Expression:
        """One digit or more from ``place`` on, after digits equal to those of the given bounds."""
        pool = self.pool
        left = self.places - place
        if left == 0:
            return pool.empty
        if low is None and high is None:
            return pool.repeat(pool.byte(DIGITS), 1, left)
        by_bounds: dict[tuple[str | None, str | None], int] = {}
        first = 0 if low is None else int(low[place])
        last = 9 if high is None else int(high[place])
        for digit in range(first, last + 1):
            bounds = (low if digit == first else None, high if digit == last else None)
            by_bounds[bounds] = by_bounds.get(bounds, 0) | digits(digit, digit)
        options = []
        for (below, above), members in by_bounds.items():
            rest = self._places(place + 1, below, above)
            if below is None or not int(below[place + 1 :] or "0"):
                rest = pool.optional(rest)
            options.append(pool.concatenate(pool.byte(members), rest))
        return pool.union(options)


def _any_number(pool: ExpressionPool, limits: Limits) -> Expression:
    """Any number whose float is finite: exponents stop short of the largest float.

    A number of one digit before the point may have a larger exponent than a longer one.
    """
    digit = pool.byte(DIGITS)
    fraction = pool.concatenate(pool.literal(b"."), pool.repeat(digit, 1, limits.fraction_digits))
    some_fraction = pool.optional(fraction)
    largest = sys.float_info.max_10_exp
    exponent = pool.optional(_exponent(pool, largest - limits.integer_digits))
    whole = natural(pool, 1, 10**limits.integer_digits - 1)
    nonzero = pool.union(
        (
            pool.concatenate(whole, some_fraction, exponent),
            pool.concatenate(pool.literal(b"0"), fraction, exponent),
            pool.concatenate(natural(pool, 1, 9), some_fraction, _exponent(pool, largest - 1)),
        )
    )
    sign = pool.optional(pool.literal(b"-"))
    return pool.union((pool.literal(b"0"), pool.concatenate(sign, nonzero)))


def _exponent(pool: ExpressionPool, largest: int) -> Expression:
    """Exponents up to ``largest``, of two digits or less with leading zeros as Python writes."""

    def up_to(last: int) -> Expression:
        return pool.union((pool.repeat(pool.byte(DIGITS), 1, 2), natural(pool, 100, last)))

    positive = pool.concatenate(pool.optional(pool.literal(b"+")), up_to(largest))
    negative = pool.concatenate(pool.literal(b"-"), up_to(-sys.float_info.min_10_exp))
    return pool.concatenate(pool.literal(b"e"), pool.union((positive, negative)))


def _exponential(pool: ExpressionPool, between: Interval, limits: Limits) -> list[Expression]:
    """Numbers near zero and far from it that have an exponent and that no bound cuts through."""
    fraction = pool.concatenate(
        pool.literal(b"."), pool.repeat(pool.byte(DIGITS), 1, limits.fraction_digits)
    )
    mantissa = pool.concatenate(natural(pool, 1, 9), pool.optional(fraction))
    tiny = pool.union(
        (
            natural(pool, 5, -sys.float_info.min_10_exp),
            pool.concatenate(pool.literal(b"0"), natural(pool, 5, 9)),
        )
    )
    near = pool.concatenate(mantissa, pool.literal(b"e-"), tiny)
    huge = natural(pool, _PLAIN_BELOW_POWER, sys.float_info.max_10_exp - 1)
    far = pool.concatenate(mantissa, pool.literal(b"e+"), huge)
    low = -math.inf if between.lower is None else between.lower.value
    high = math.inf if between.upper is None else between.upper.value
    options = []
    for first, last, sign in ((low, high, b""), (-high, -low, b"-")):
        if first <= 0 and last > _PLAIN_FROM:
            options.append(pool.concatenate(pool.literal(sign), near))
        if first < 10**_PLAIN_BELOW_POWER and last == math.inf:
            options.append(pool.concatenate(pool.literal(sign), far))
    return options


def plain_number(pool: ExpressionPool, numbers: Expression) -> Expression:
    """``numbers`` without exponents and redundant zeros.

    They are equal if and only if their texts are. With a fraction they have at most eight digits
    before the point and seven after it, as longer ones may be the same float.
    """
    return pool.intersect(
        (numbers, pool.once("numbers in one spelling", lambda: _in_one_spelling(pool)))
    )


def _in_one_spelling(pool: ExpressionPool) -> Expression:
    digit, first = pool.byte(DIGITS), pool.byte(byte_set(b"123456789"))
    zero, point, sign = pool.literal(b"0"), pool.literal(b"."), pool.literal(b"-")
    natural = pool.concatenate(first, pool.repeat(digit))
    before = pool.union((zero, pool.concatenate(first, pool.repeat(digit, 0, _DIGITS_BEFORE - 1))))
    behind = pool.concatenate(pool.repeat(digit, 0, _DIGITS_BEHIND - 1), first)
    fraction = pool.concatenate(before, point, behind)
    return pool.union(
        (zero, pool.concatenate(pool.optional(sign), pool.union((natural, fraction))))
    )
