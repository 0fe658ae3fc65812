"""Rests of decimals that complete given digits to a multiple, or a non-multiple."""

from __future__ import annotations

import math
from typing import NamedTuple

POINT = 1 << ord(".")
AFTER_POINT = -1
IN_FRACTION = -2


class Remainder(NamedTuple):
    """The rests of a decimal whose digits so far leave ``remainder`` modulo ``step``.

    A number is read as a count of its last place; it must be a multiple of ``step`` if
    ``divisible``, else must not be. From ``least`` to ``most`` digits follow before the point, and
    at most ``left`` after it, of which trailing zeros may be missing.
    """

    step: int
    divisible: bool
    remainder: int
    least: int
    """``AFTER_POINT``: directly after the point; ``IN_FRACTION``: after a digit of the fraction."""
    most: int
    left: int

    @property
    def may_end(self) -> bool:
        whole = self.remainder * 10**self.left % self.step == 0
        return self.least in (0, IN_FRACTION) and whole is self.divisible

    def row(self) -> list[tuple[int, Remainder]]:
        """Each next byte, as a set of bytes, and the rest after it."""
        step, divisible, remainder, least, most, left = self
        after = (max(least - 1, 0), most - 1, left) if least >= 0 else (IN_FRACTION, 0, left - 1)
        row = []
        if most > 0 or (least < 0 and left > 0):
            for digit in range(10):
                rest = (10 * remainder + digit) % step
                row.append((1 << 0x30 + digit, Remainder(step, divisible, rest, *after)))
        if least == 0 and left > 0:
            row.append((POINT, Remainder(step, divisible, remainder, AFTER_POINT, 0, left)))
        return row

    def shortest(self) -> bytes | None:
        """The shortest rest, with the least digits; None if there is none."""
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
        """Bytes of the longest rest."""
        return self.most + self.left + (1 if self.least >= 0 and self.left else 0)

    @property
    def is_alive(self) -> bool:
        """Whether there is any rest."""
        enough = 10 ** (self.most + self.left) > self.step > 1
        return enough or self.shortest() is not None

    def _least(self, size: int, scale: int) -> int | None:
        """The least number of ``size`` digits that, times ``scale``, completes the count."""
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
