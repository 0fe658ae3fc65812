"""Digits that make multiples, or none, behind what a number begins with."""

from __future__ import annotations

import math
from typing import NamedTuple

POINT = 1 << ord(".")
AFTER_POINT = -1
IN_FRACTION = -2


class Remainder(NamedTuple):
    """What may end a decimal whose digits so far leave ``remainder`` by ``step``.

    A number counts the last of its places: it is a multiple where ``step`` divides that count, and
    is written where that is ``divisible``. From ``least`` to ``most`` digits come before the point,
    and behind it ``left`` at most, of which zeros at the end may be missing.
    """

    step: int
    divisible: bool
    remainder: int
    least: int
    """``AFTER_POINT``: right behind the point; ``IN_FRACTION``: behind a digit after it."""
    most: int
    left: int

    @property
    def may_end(self) -> bool:
        whole = self.remainder * 10**self.left % self.step == 0
        return self.least in (0, IN_FRACTION) and whole is self.divisible

    def ways(self) -> list[tuple[int, Remainder]]:
        """The next byte, as a set of bytes, and what is left behind it."""
        step, divisible, remainder, least, most, left = self
        after = (max(least - 1, 0), most - 1, left) if least >= 0 else (IN_FRACTION, 0, left - 1)
        ways = []
        if most > 0 or (least < 0 and left > 0):
            for digit in range(10):
                rest = (10 * remainder + digit) % step
                ways.append((1 << 0x30 + digit, Remainder(step, divisible, rest, *after)))
        if least == 0 and left > 0:
            ways.append((POINT, Remainder(step, divisible, remainder, AFTER_POINT, 0, left)))
        return ways

    def shortest(self) -> bytes | None:
        """The fewest bytes that end it, and of these the least digits; None where none do."""
        fewest = 1 if self.least == AFTER_POINT else 0
        point = b"." if self.least >= 0 else b""
        for length in range(self.most + len(point) + self.left + 1):
            for behind in range(fewest, min(self.left, length) + 1):
                between = point if behind else b""
                before = length - behind - len(between)
                if max(self.least, 0) <= before <= self.most:
                    count = self._least(before + behind, 10 ** (self.left - behind))
                    if count is not None:
                        digits = b"%0*d" % (before + behind, count) if before + behind else b""
                        return digits[:before] + between + digits[before:]
        return None

    @property
    def longest(self) -> int:
        """The most bytes that end it."""
        return self.most + self.left + (1 if self.least >= 0 and self.left else 0)

    @property
    def is_alive(self) -> bool:
        """Whether anything ends it."""
        enough = 10 ** (self.most + self.left) > self.step > 1
        return enough or self.shortest() is not None

    def _least(self, size: int, scale: int) -> int | None:
        """The least number of ``size`` digits that, ``scale`` times, is what is missing."""
        begun = self.remainder * 10**size * scale
        if not self.divisible:
            few = range(min(2, 10**size))
            return next((n for n in few if (begun + n * scale) % self.step), None)
        common = math.gcd(scale, self.step)
        if begun % common:
            return None
        step = self.step // common
        count = -begun // common * pow(scale // common, -1, step) % step
        return count if count < 10**size else None
