"""Multiples, followed digit by digit by what is left of a division.

A number on the grid of ``places`` digits after the point is a count of its last place, and it is a
multiple where ``step`` divides that count. Digits that are still to come take factors of ten out of
the step: with n of them only the remainder by step / gcd(step, 10**n) matters, so 6.75, which is
675 hundredths, needs 27 remainders before the point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from app.constraint.cached_method import cached_method
from app.constraint.json.numbers.decimals import Decimals, ends_on_grid
from app.constraint.json.numbers.ranges import DIGITS, Interval, natural, signed
from app.constraint.language.expressions import ByteSet, Expression, ExpressionPool
from app.constraint.limits import Limits

EXACT_DIGITS = 15
"""Decimals of so many digits stay apart as floats, and a float's shortest form gives them back."""
_ENUMERATED = 1_000
"""Multiples that are listed one by one rather than followed digit by digit."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Counts of the last of ``places`` digits after the point, and which of them are multiples."""

    places: int
    step: int
    low: int
    high: int

    @property
    def tail(self) -> int:
        """Digits at the end that take all the factors of ten out of the step."""
        left = self.places
        while (modulus := self.modulus(left)) % 2 == 0 or modulus % 5 == 0:
            left += 1
        return left

    @property
    def states(self) -> int:
        """Remainders that are told apart, at each digit of the longest number."""
        length = max(len(str(max(-self.low, self.high))), self.places + 1)
        tail = min(self.tail, length)
        states = (length - tail) * self.modulus(tail)
        return states + sum(min(self.modulus(left), int(10**left) + 1) for left in range(tail))

    @property
    def count(self) -> int:
        """Multiples between the ends, or one more."""
        return (self.high - self.low) // self.step

    def modulus(self, left: int) -> int:
        """What the step is to a number of which ``left`` digits are still to come."""
        return self.step // math.gcd(self.step, 10**left)


def integer(
    pool: ExpressionPool, between: Interval, limits: Limits, multiple_of: int = 1
) -> Expression:
    """The integers between the bounds that ``multiple_of`` divides.

    Without a bound there are ``limits.integer_digits`` digits, or one more than the other bound
    or ``multiple_of`` has. Ask ``can_follow_multiples`` before.
    """

    def build() -> Expression:
        grid = integer_grid(between, limits, multiple_of)
        naturals = partial(_natural_multiples, pool, factor=multiple_of)
        return signed(pool, grid.low, grid.high, naturals)

    return pool.once(("integer", between, limits.integer_digits, multiple_of), build)


def multiples(
    pool: ExpressionPool, between: Interval, limits: Limits, multiple_of: Fraction
) -> Expression:
    """The plain decimals between the bounds that are multiples, exactly and as a float reads.

    They have at most the decimal places of ``multiple_of``, and zeros to fill these. Where that is
    not a power of ten, they have ``EXACT_DIGITS`` digits at most. Ask ``can_follow_multiples``
    before.
    """
    grid = decimal_grid(between, limits, multiple_of)
    naturals: Callable[[int, int], Expression]
    if grid.step == 1:
        naturals = Decimals(pool, grid.places).between
    elif grid.states <= limits.multiple_states:
        naturals = Remainders(pool, grid).between
    else:

        def naturals(first: int, last: int) -> Expression:
            return pool.one_of(_listed(first, last, grid))

    return signed(pool, grid.low, grid.high, naturals)


def can_follow_multiples(between: Interval, limits: Limits, multiple_of: int | Fraction) -> bool:
    """Whether ``integer``, or ``multiples`` for a fraction, takes these arguments."""
    if isinstance(multiple_of, Fraction):
        grid = decimal_grid(between, limits, multiple_of)
        followed = grid.step == 1 or grid.states <= limits.multiple_states
        return followed or grid.count < _ENUMERATED
    grid = integer_grid(between, limits, multiple_of)
    if grid.count < _ENUMERATED:
        return True
    while multiple_of % 10 == 0:
        multiple_of //= 10
    return Grid(0, multiple_of, grid.low, grid.high).states <= limits.multiple_states


def integer_grid(between: Interval, limits: Limits, multiple_of: int) -> Grid:
    """Integers between the bounds."""
    digits = max(limits.integer_digits, len(str(multiple_of)) + 1)
    return Grid(0, multiple_of, *between.integers(digits))


def decimal_grid(
    between: Interval, limits: Limits, multiple_of: Fraction, least_places: int = 0
) -> Grid:
    """The coarsest grid that has all multiples, of ``limits.fraction_digits`` places at most."""
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


def _listed(first: int, last: int, grid: Grid) -> Iterable[bytes]:
    """The multiples, with no digit too many, with one after the point, and with all of them."""
    scale = 10**grid.places
    for count in range(first + -first % grid.step, last + 1, grid.step):
        whole, places = divmod(count, scale)
        padded = str(places).rjust(grid.places, "0")
        shortest = padded.rstrip("0")
        yield f"{whole}.{padded}".encode()
        yield f"{whole}.{shortest or 0}".encode()
        if not shortest:
            yield b"%d" % whole


class Remainders:
    """Decimals whose count on the grid ``grid.step`` divides, or does not where ``divisible`` is
    False. Trailing zeros may be left out after the point, as far as there are ``grid.places``.

    The last ``grid.tail`` digits are followed knowing how many are left, those before without.
    """

    def __init__(self, pool: ExpressionPool, grid: Grid, *, divisible: bool = True) -> None:
        self.pool = pool
        self.grid = grid
        self.divisible = divisible
        self._tails: dict[tuple[int, int], Expression] = {}
        self._heads: dict[tuple[int, int], list[Expression]] = {}

    def between(self, first: int, last: int) -> Expression:
        """From ``first`` to ``last``, natural counts of the last place."""
        if self.divisible:
            first += -first % self.grid.step
            last -= last % self.grid.step
        if first > last:
            return self.pool.empty
        shortest = self.grid.places + 1
        low, high = str(first).rjust(shortest, "0"), str(last).rjust(shortest, "0")
        options = []
        if low[0] == "0":  # before the point only 0
            options.append(self._tail(shortest, 0, low, min(high, "0" + "9" * (shortest - 1))))
            low = "1" + "0" * (shortest - 1)
        if int(high) >= int(low):
            options.append(self._nonzero(low, high))
        return self.pool.union(options)

    def _nonzero(self, low: str, high: str) -> Expression:
        """Counts of one digit or more before the point, the first of which is not 0."""
        shortest, longest = len(low), len(high)
        if shortest == longest:
            return self._tail(shortest, 0, low, high)
        step, tail, options = self.grid.step if self.divisible else 1, self.grid.tail, []
        if int(low) - step >= 10 ** (shortest - 1):
            options.append(self._tail(shortest, 0, low, "9" * shortest))
            shortest += 1
        if int(high) + step < 10**longest:
            options.append(self._tail(longest, 0, "1" + "0" * (longest - 1), high))
            longest -= 1
        while shortest <= min(tail, longest):
            options.append(self._tail(shortest, 0, "1" + "0" * (shortest - 1), "9" * shortest))
            shortest += 1
        if shortest <= longest:
            after_first = self._head(shortest - tail - 1, longest - tail - 1)
            modulus = len(after_first)
            options.append(
                self._any_digit((after_first[digit % modulus] for digit in range(1, 10)), 1)
            )
        return self.pool.union(options)

    def _head(self, least: int, most: int) -> list[Expression]:
        """``least`` to ``most`` digits and the tail, by the remainder of the digits before."""
        tail = self.grid.tail
        modulus = self._modulus(tail)
        ends = [self._tail(tail, remainder) for remainder in range(modulus)]
        if modulus == 1:
            pool = self.pool
            return [pool.concatenate(pool.repeat(pool.byte(DIGITS), least, most), ends[0])]
        head = ends
        for digits_left in range(1, most + 1):
            needed = max(least - (most - digits_left), 0)
            known = self._heads.get((needed, digits_left))
            if known is None:
                rests = head * (10 // modulus + 2)  # as the remainders go round
                starts = [10 * remainder % modulus for remainder in range(modulus)]
                digits = {n: self._any_digit(rests[n : n + 10], 0) for n in set(starts)}
                known = [digits[n] for n in starts]
                if needed == 0:
                    known = [self.pool.union(pair) for pair in zip(ends, known, strict=True)]
                self._heads[needed, digits_left] = known
            head = known
        return head

    def _tail(
        self, left: int, remainder: int, low: str | None = None, high: str | None = None
    ) -> Expression:
        """The last ``left`` digits, with the point; a bound that is None no longer matters."""
        remainder %= self._modulus(left)
        free = low is None and high is None
        if free and (left, remainder) in self._tails:
            return self._tails[left, remainder]
        pool, places = self.pool, self.grid.places
        may_end = (remainder == 0) == self.divisible and (low is None or not low.strip("0"))
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
        if free:
            self._tails[left, remainder] = found
        return found

    def _any_digit(self, rests: Iterable[Expression], first: int) -> Expression:
        """The digits from ``first`` on, each with what follows it."""
        by_rest: dict[Expression, ByteSet] = {}
        for digit, rest in enumerate(rests, 0x30 + first):
            by_rest[rest] = by_rest.get(rest, 0) | 1 << digit
        return self.pool.union([self._digit_and(rest, bits) for rest, bits in by_rest.items()])

    @cached_method
    def _digit_and(self, rest: Expression, members: ByteSet) -> Expression:
        return self.pool.concatenate(self.pool.byte(members), rest)

    @cached_method
    def _modulus(self, left: int) -> int:
        return self.grid.modulus(left)
