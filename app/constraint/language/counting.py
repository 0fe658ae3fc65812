"""How many strings a language has, as far as it matters."""

from __future__ import annotations

from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import Expression

ENDLESS = 1 << 24
"""So many that no answer uses them up."""

UNKNOWN_LENGTH = 1 << 30
_MOST_NESTED = 100
"""Branches behind one another that are counted; of what is behind them one string counts."""
_MOST_LONGER = 512
"""Lengths that are tried, beyond the shortest."""


class Counting:
    """Counts the strings of languages along their derivatives, which spell each in one way."""

    def __init__(self, derivatives: Derivatives) -> None:
        self._derivatives = derivatives
        self._exact: dict[Expression, int] = {}
        self._least: dict[Expression, int] = {}
        self._open: set[Expression] = set()
        self.is_exact = True
        """Whether nothing was left out so far: a count below its ``most`` is the number."""
        self._nested = 0
        self._within: dict[tuple[Expression, int], tuple[int, int]] = {}

    def count(self, expression: Expression, most: int = ENDLESS) -> int:
        """How many strings, at most ``most``; perhaps fewer than there are.

        Raises as ``Derivatives.row``.
        """
        derivatives, nullable = self._derivatives, self._derivatives.pool.nullable
        if most <= 1:
            return int(most == 1 and derivatives.is_alive(expression))
        passed = []
        while not nullable[expression]:
            row = derivatives.live_row(expression)
            if len(row) != 1 or row[0][0] & (row[0][0] - 1) or expression in self._exact:
                break
            passed.append(expression)
            expression = row[0][1]
        found = self._counted(expression, most)
        if found < most:
            self._exact.update(dict.fromkeys(passed, found))
        return found

    def _counted(self, expression: Expression, most: int) -> int:
        known = self._exact.get(expression)
        if known is not None:
            return min(known, most)
        if expression in self._open or self._least.get(expression, 0) >= most:
            return most  # a way back to where it began: without end
        if self._nested >= _MOST_NESTED:
            self.is_exact = False
            return 1
        self._open.add(expression)
        self._nested += 1
        try:
            return self._sum(expression, most)
        finally:
            self._nested -= 1
            self._open.discard(expression)

    def _sum(self, expression: Expression, most: int) -> int:
        derivatives = self._derivatives
        total = int(derivatives.pool.nullable[expression])
        row = derivatives.live_row(expression)
        for bits, target in sorted(row, key=lambda way: -way[0].bit_count()):
            if total >= most:
                break
            width = bits.bit_count()
            derivatives.spend(1)
            total += width * self.count(target, -(-(most - total) // width))
        if total >= most:
            self._least[expression] = max(most, self._least.get(expression, 0))
            return most
        self._exact[expression] = total
        return total

    def length_of(self, expression: Expression, number: int) -> int:
        """The length that ``number`` strings do not exceed; they must be there.

        ``UNKNOWN_LENGTH`` where that is not found.
        """
        length = self._derivatives.length(expression)
        for longer in range(_MOST_LONGER):
            if self.within(expression, length + longer, number) >= number:
                return length + longer
        return UNKNOWN_LENGTH

    def within(self, expression: Expression, length: int, most: int) -> int:
        """How many strings have ``length`` bytes at most; at most ``most``."""
        derivatives, nullable = self._derivatives, self._derivatives.pool.nullable
        while not nullable[expression]:
            row = derivatives.live_row(expression)
            if len(row) != 1 or row[0][0] & (row[0][0] - 1):
                break
            expression, length = row[0][1], length - 1
        if derivatives.length(expression) > length or most <= 0:
            return 0
        if most == 1:
            return 1
        found, asked = self._within.get((expression, length), (0, 0))
        if asked >= most or found < asked:
            return min(found, most)
        if self._nested >= _MOST_NESTED:
            return 1
        self._nested += 1
        try:
            total = self._sum_within(expression, length, most)
        finally:
            self._nested -= 1
        self._within[expression, length] = (total, most)
        return total

    def _sum_within(self, expression: Expression, length: int, most: int) -> int:
        derivatives = self._derivatives
        total = int(derivatives.pool.nullable[expression])
        row = derivatives.live_row(expression)
        for bits, target in sorted(row, key=lambda way: -way[0].bit_count()):
            if total >= most:
                break
            width = bits.bit_count()
            derivatives.spend(1)
            total += width * self.within(target, length - 1, -(-(most - total) // width))
        return min(total, most)
