"""Ranges of integers, digit by digit: they cost the number of digits, not the number of values.

Integers have no leading zeros, no fraction and no "-0".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from app.constraint.language.expressions import ByteSet, Expression, ExpressionPool, byte_range

DIGITS: ByteSet = byte_range(0x30, 0x39)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range."""

    value: int | float
    exclusive: bool

    def is_below(self, candidate: int | float | Fraction, value: int | float | Fraction) -> bool:
        """Whether a lower bound that stands at ``value`` admits the candidate."""
        return candidate > value or (candidate == value and not self.exclusive)


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers between two bounds; a side without one is open to infinity."""

    lower: Bound | None = None
    upper: Bound | None = None

    def admits(self, value: int | float) -> bool:
        """Whether ``value`` lies between the bounds."""
        low, high = self.lower, self.upper
        above = low is None or low.is_below(value, low.value)
        return above and (high is None or high.is_below(high.value, value))

    def integers(self, digits: int) -> tuple[int, int]:
        """The least and the greatest integer; see ``closed`` for sides without a bound."""
        low = high = None
        if self.lower is not None:
            value, exclusive = self.lower.value, self.lower.exclusive
            low = math.floor(value) + 1 if exclusive else math.ceil(value)
        if self.upper is not None:
            value, exclusive = self.upper.value, self.upper.exclusive
            high = math.ceil(value) - 1 if exclusive else math.floor(value)
        return closed(low, high, digits)


def written(value: int | float) -> Fraction:
    """The decimal that ``value`` is written as, exactly: 0.1 is a tenth."""
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def closed(low: int | None, high: int | None, digits: int) -> tuple[int, int]:
    """Both ends; one without a bound has ``digits`` digits, or one more than the other if that is
    more."""
    if high is None:
        high = 10 ** max(digits, len(str(abs(low or 0))) + 1) - 1
        if low is None:
            low = -high
    elif low is None:
        low = 1 - 10 ** max(digits, len(str(abs(high))) + 1)
    return low, high


def signed(
    pool: ExpressionPool, low: int, high: int, magnitudes: Callable[[int, int], Expression]
) -> Expression:
    """Numbers from ``low`` to ``high``; ``magnitudes`` builds a range of natural numbers."""
    options = []
    if high >= 0 and low <= high:
        options.append(magnitudes(max(low, 0), high))
    if low < 0 and low <= high:
        negative = magnitudes(max(-high, 1), -low)
        options.append(pool.concatenate(pool.literal(b"-"), negative))
    return pool.union(options)


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
        rest = pool.repeat(pool.byte(DIGITS), shortest - 1, longest - 1)
        options.append(pool.concatenate(pool.byte(digits(1, 9)), rest))
    return pool.union(options)


def digits(first: int, last: int) -> ByteSet:
    """The digits from ``first`` to ``last``."""
    return byte_range(0x30 + first, 0x30 + last) if first <= last else 0


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
        pool.concatenate(pool.literal(low[0].encode()), _bounded(pool, low[1:], upper=False)),
        pool.concatenate(pool.literal(high[0].encode()), _bounded(pool, high[1:], upper=True)),
    ]
    if int(low[0]) + 1 < int(high[0]):
        middle = pool.byte(digits(int(low[0]) + 1, int(high[0]) - 1))
        options.append(pool.concatenate(middle, _free(pool, len(low) - 1)))
    return pool.concatenate(prefix, pool.union(options))


def _free(pool: ExpressionPool, count: int) -> Expression:
    return pool.repeat(pool.byte(DIGITS), count, count)


def _bounded(pool: ExpressionPool, bound: str, *, upper: bool) -> Expression:
    """Digit strings as long as ``bound`` that satisfy it; built from the last digit."""
    stripped = bound.rstrip("9" if upper else "0")
    result = _free(pool, len(bound) - len(stripped))
    for place in range(len(stripped) - 1, -1, -1):
        digit = int(stripped[place])
        others = digits(0, digit - 1) if upper else digits(digit + 1, 9)
        within = pool.concatenate(pool.byte(others), _free(pool, len(bound) - place - 1))
        result = pool.union((within, pool.concatenate(pool.literal(b"%d" % digit), result)))
    return result
