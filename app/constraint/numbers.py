"""Numbers in decimal digits: ranges, multiples and fractions as byte expressions.

Integers have no leading zeros, no fraction and no "-0". Ranges are built digit by digit, so they
cost the number of digits and not the number of values.

A bounded ``number`` is a plain decimal without exponent. Readers round it to a float before they
compare it with the bound, so a bound is moved to the nearest decimal that is on the right side both
exactly and after rounding; rounding is monotone, so everything beyond is right as well.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from app.constraint.expressions import Expression, ExpressionPool, byte_range
from app.constraint.limits import Limits

_DIGITS = byte_range(0x30, 0x39)
_ENUMERATED = 1_000
"""Multiples that are listed one by one rather than followed digit by digit."""
_FLOATS_SKIP_INTEGERS = 1 << 53


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range."""

    value: int | float
    exclusive: bool

    def admits(self, candidate: int | float, *, upper: bool) -> bool:
        """Whether the candidate is on the right side of this lower or upper bound."""
        if candidate == self.value:
            return not self.exclusive
        return candidate < self.value if upper else candidate > self.value

    def is_below(self, candidate: int | float | Fraction, value: int | float | Fraction) -> bool:
        """Whether a lower bound that stands at ``value`` admits the candidate."""
        return candidate > value or (candidate == value and not self.exclusive)


def least_integer(bound: Bound) -> int:
    """The smallest integer a lower bound admits."""
    if bound.exclusive:
        return math.floor(bound.value) + 1
    return math.ceil(bound.value)


def greatest_integer(bound: Bound) -> int:
    """The largest integer an upper bound admits."""
    if bound.exclusive:
        return math.ceil(bound.value) - 1
    return math.floor(bound.value)


def integer(
    pool: ExpressionPool,
    lower: Bound | None,
    upper: Bound | None,
    limits: Limits,
    multiple_of: int = 1,
) -> Expression:
    """The integers between the bounds that ``multiple_of`` divides.

    Without a bound there are ``limits.integer_digits`` digits, or one more than the other bound
    has. Ask ``can_follow_multiples`` before.
    """
    low = None if lower is None else least_integer(lower)
    high = None if upper is None else greatest_integer(upper)
    low, high = _closed(low, high, limits.integer_digits)

    def naturals(first: int, last: int) -> Expression:
        if multiple_of == 1:
            return natural(pool, first, last)
        return _multiples(pool, first, last, multiple_of)

    return _signed(pool, low, high, naturals)


def can_follow_multiples(
    lower: Bound | None, upper: Bound | None, limits: Limits, multiple_of: int
) -> bool:
    """Whether ``integer`` takes this ``multiple_of`` with these bounds."""
    low = None if lower is None else least_integer(lower)
    high = None if upper is None else greatest_integer(upper)
    low, high = _closed(low, high, limits.integer_digits)
    if (high - low) // multiple_of < _ENUMERATED:
        return True
    while multiple_of % 10 == 0:
        multiple_of //= 10
    return multiple_of * len(str(max(-low, high))) <= limits.multiple_states


def number(
    pool: ExpressionPool, lower: Bound | None, upper: Bound | None, limits: Limits
) -> Expression:
    """The finite decimal numbers between the bounds; ``empty`` if the digits do not reach any."""
    if lower is None and upper is None:
        return _any_number(pool, limits)
    scale = 10**limits.fraction_digits
    low = None if lower is None else _first_on_grid(lower, scale)
    high = None if upper is None else _last_on_grid(upper, scale)
    low, high = _closed(low, high, limits.integer_digits + limits.fraction_digits)
    ceiling = int(sys.float_info.max) * scale
    low, high = max(low, -ceiling), min(high, ceiling)
    decimals = _Decimals(pool, limits.fraction_digits)
    return _signed(pool, low, high, decimals.between)


def natural(pool: ExpressionPool, first: int, last: int) -> Expression:
    """The natural numbers from ``first`` to ``last``."""
    if first > last:
        return pool.empty
    if first == 0:
        return pool.union((pool.literal(b"0"), natural(pool, 1, last)))
    low, high = str(first), str(last)
    if len(low) == len(high):
        return _between(pool, low, high)
    options = []
    shortest, longest = len(low), len(high)
    if first != 10 ** (shortest - 1):
        options.append(_between(pool, low, "9" * shortest))
        shortest += 1
    if last != 10**longest - 1:
        options.append(_between(pool, "1" + "0" * (longest - 1), high))
        longest -= 1
    if shortest <= longest:
        rest = pool.repeat(pool.byte(_DIGITS), shortest - 1, longest - 1)
        options.append(pool.concatenate(pool.byte(_digits(1, 9)), rest))
    return pool.union(options)


def _signed(
    pool: ExpressionPool, low: int, high: int, magnitudes: Callable[[int, int], Expression]
) -> Expression:
    options = []
    if high >= 0 and low <= high:
        options.append(magnitudes(max(low, 0), high))
    if low < 0 and low <= high:
        negative = magnitudes(max(-high, 1), -low)
        options.append(pool.concatenate(pool.literal(b"-"), negative))
    return pool.union(options)


def _closed(low: int | None, high: int | None, digits: int) -> tuple[int, int]:
    """Ends for the sides that have no bound."""
    if high is None:
        high = 10 ** max(digits, len(str(abs(low or 0))) + 1) - 1
        if low is None:
            low = -high
    elif low is None:
        low = 1 - 10 ** max(digits, len(str(abs(high))) + 1)
    return low, high


def _between(pool: ExpressionPool, low: str, high: str) -> Expression:
    """Digit strings of one length from ``low`` to ``high``."""
    if low > high:
        return pool.empty
    same = 0
    while same < len(low) and low[same] == high[same]:
        same += 1
    prefix = pool.literal(low[:same].encode())
    if same == len(low):
        return prefix
    low, high = low[same:], high[same:]
    options = [
        pool.concatenate(pool.literal(low[0].encode()), _at_least(pool, low[1:])),
        pool.concatenate(pool.literal(high[0].encode()), _at_most(pool, high[1:])),
    ]
    if int(low[0]) + 1 < int(high[0]):
        middle = pool.byte(_digits(int(low[0]) + 1, int(high[0]) - 1))
        options.append(pool.concatenate(middle, _free(pool, len(low) - 1)))
    return pool.concatenate(prefix, pool.union(options))


def _free(pool: ExpressionPool, count: int) -> Expression:
    return pool.repeat(pool.byte(_DIGITS), count, count)


def _at_least(pool: ExpressionPool, low: str) -> Expression:
    """Digit strings as long as ``low`` and not below it; built from the last digit."""
    stripped = low.rstrip("0")
    result = _free(pool, len(low) - len(stripped))
    for place in range(len(stripped) - 1, -1, -1):
        digit = int(stripped[place])
        above = pool.concatenate(
            pool.byte(_digits(digit + 1, 9)), _free(pool, len(low) - place - 1)
        )
        result = pool.union((above, pool.concatenate(pool.literal(b"%d" % digit), result)))
    return result


def _at_most(pool: ExpressionPool, high: str) -> Expression:
    """Digit strings as long as ``high`` and not above it."""
    stripped = high.rstrip("9")
    result = _free(pool, len(high) - len(stripped))
    for place in range(len(stripped) - 1, -1, -1):
        digit = int(stripped[place])
        below = pool.concatenate(
            pool.byte(_digits(0, digit - 1)), _free(pool, len(high) - place - 1)
        )
        result = pool.union((below, pool.concatenate(pool.literal(b"%d" % digit), result)))
    return result


def _digits(first: int, last: int) -> int:
    return byte_range(0x30 + first, 0x30 + last) if first <= last else 0


def _any_number(pool: ExpressionPool, limits: Limits) -> Expression:
    """Any number whose float is finite: exponents stop short of the largest float.

    A number of one digit before the point may have a larger exponent than a longer one.
    """
    digit = pool.byte(_DIGITS)
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
        return pool.union((pool.repeat(pool.byte(_DIGITS), 1, 2), natural(pool, 100, last)))

    positive = pool.concatenate(pool.optional(pool.literal(b"+")), up_to(largest))
    negative = pool.concatenate(pool.literal(b"-"), up_to(-sys.float_info.min_10_exp))
    return pool.concatenate(pool.literal(b"e"), pool.union((positive, negative)))


def _first_on_grid(bound: Bound, scale: int) -> int:
    """The smallest n for which n/scale is above a lower bound, however a reader takes them.

    As decimals, with the bound as it is written; as floats; and, beyond 2**53, as the integer
    against the exact value of the float, as Python does.
    """
    exact = Fraction(bound.value)
    written = Fraction(repr(bound.value))
    large = abs(exact) >= _FLOATS_SKIP_INTEGERS

    def admitted(n: int) -> bool:
        decimal = Fraction(n, scale)
        if not bound.is_below(decimal, written) or (large and not bound.is_below(decimal, exact)):
            return False
        try:
            return bound.is_below(n / scale, bound.value)
        except OverflowError:
            return n > 0

    refused = math.floor(min(exact, written) * scale) - 1
    step = 1
    while not admitted(refused + step):
        step *= 2
    found = refused + step
    while found - refused > 1:
        middle = (found + refused) // 2
        if admitted(middle):
            found = middle
        else:
            refused = middle
    return found


def _last_on_grid(bound: Bound, scale: int) -> int:
    """The largest n for which n/scale is below an upper bound: the mirror image."""
    return -_first_on_grid(Bound(-bound.value, bound.exclusive), scale)


class _Decimals:
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
        anything = self._fraction(None, None)
        options.append(pool.concatenate(natural(pool, low, high), anything))
        return pool.union(options)

    def _padded(self, places: int) -> str:
        return str(places).rjust(self.places, "0")

    def _with_fraction(self, whole: int, low: str | None, high: str | None) -> Expression:
        pool = self.pool
        return pool.concatenate(pool.literal(b"%d" % whole), self._fraction(low, high))

    def _fraction(self, low: str | None, high: str | None) -> Expression:
        """Fractions from ``low`` to ``high``, None being no bound; none at all where 0 fits."""
        pool = self.pool
        if low is None and high is None:
            digits = pool.repeat(pool.byte(_DIGITS), 1, self.places)
        else:
            digits = self._places(0, low, high)
        some = pool.concatenate(pool.literal(b"."), digits)
        return pool.optional(some) if low is None or not int(low) else some

    def _places(self, place: int, low: str | None, high: str | None) -> Expression:
        """One digit or more from ``place`` on; a bound given is one the digits so far equal."""
        pool = self.pool
        left = self.places - place
        if low is None and high is None:
            return pool.repeat(pool.byte(_DIGITS), 1, left) if left else pool.empty
        if left == 0:
            return pool.empty
        by_bounds: dict[tuple[str | None, str | None], int] = {}
        first = 0 if low is None else int(low[place])
        last = 9 if high is None else int(high[place])
        for digit in range(first, last + 1):
            bounds = (low if digit == first else None, high if digit == last else None)
            by_bounds[bounds] = by_bounds.get(bounds, 0) | _digits(digit, digit)
        options = []
        for (below, above), digits in by_bounds.items():
            rest = self._places(place + 1, below, above)
            if below is None or not int(below[place + 1 :] or "0"):
                rest = pool.optional(rest)
            options.append(pool.concatenate(pool.byte(digits), rest))
        return pool.union(options)


def _multiples(pool: ExpressionPool, first: int, last: int, factor: int) -> Expression:
    """The multiples of ``factor`` among the natural numbers from ``first`` to ``last``."""
    first += -first % factor
    if factor % 10 == 0 and first > 0:
        tenths = _multiples(pool, first // 10, last // 10, factor // 10)
        return pool.concatenate(tenths, pool.literal(b"0"))
    if factor % 10 == 0:
        return pool.union((pool.literal(b"0"), _multiples(pool, factor, last, factor)))
    if factor == 1:
        return natural(pool, first, last)
    if (last - first) // factor < _ENUMERATED:
        return pool.union(pool.literal(b"%d" % n) for n in range(first, last + 1, factor))
    options = [pool.literal(b"0")] if first == 0 else []
    by_residue = _Residues(pool, factor)
    for length in range(len(str(first)), len(str(last)) + 1):
        low = max(first, 10 ** (length - 1))
        high = min(last, 10**length - 1)
        options.append(by_residue.between(str(low), str(high), 0))
    return pool.union(options)


class _Residues:
    """Digit strings that continue a number of known residue to a multiple of ``factor``."""

    def __init__(self, pool: ExpressionPool, factor: int) -> None:
        self.pool = pool
        self.factor = factor
        self._known: dict[tuple[int, int], Expression] = {}

    def between(self, low: str | None, high: str | None, residue: int) -> Expression:
        """Strings as long as the bounds; a bound that is None no longer matters."""
        bound = high if low is None else low
        assert bound is not None
        left = len(bound)
        if left == 0:
            return self.pool.epsilon if residue == 0 else self.pool.empty
        first = 0 if low is None else int(low[0])
        last = 9 if high is None else int(high[0])
        options = []
        for digit in range(first, last + 1):
            below = low[1:] if low is not None and digit == first else None
            above = high[1:] if high is not None and digit == last else None
            after = (10 * residue + digit) % self.factor
            if below is None and above is None:
                rest = self.free(left - 1, after)
            else:
                rest = self.between(below, above, after)
            options.append(self.pool.concatenate(self.pool.literal(b"%d" % digit), rest))
        return self.pool.union(options)

    def free(self, left: int, residue: int) -> Expression:
        """Any ``left`` digits."""
        if left == 0:
            return self.pool.epsilon if residue == 0 else self.pool.empty
        known = self._known.get((left, residue))
        if known is None:
            pool = self.pool
            known = pool.union(
                pool.concatenate(
                    pool.literal(b"%d" % digit),
                    self.free(left - 1, (10 * residue + digit) % self.factor),
                )
                for digit in range(10)
            )
            self._known[left, residue] = known
        return known
