"""Counts the strings of a language, up to a limit, and lists the shortest."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import count

from app.constraint.language.derivatives import Derivatives, preferred_byte
from app.constraint.language.expressions import INFINITE, ByteSet, Expression

ENDLESS = 1 << 24
"""More strings than any answer uses."""

COUNTED = 16
"""Numbers of strings are rounded up to a power of this in caches."""

UNKNOWN_LENGTH = 1 << 30
_MOST_NESTED = 100
"""Maximum depth of branches that are counted; anything deeper counts as one string."""
_MOST_LONGER = 512
"""Maximum bytes beyond the shortest string that are tried."""

_MOST_LISTED = 16
"""Maximum languages whose shortest strings are cached."""

_BACKSLASH = ord("\\")

_Edge = tuple[int, int, bytes, ByteSet, Expression]
"""Heap entry: length of the shortest string through it, insertion order, a text, and bytes that may
follow it with their derivative; no bytes: the text is a string."""

_Branch = tuple[int, Expression, int, bool]
"""Number of texts, the expression after them, their length in bytes, whether they end a string."""


class Counting:
    """Counts the strings of languages along their derivatives, each string once.

    With a byte ``end``, strings end with its first occurrence, such as names before other text.
    ``escaped``: occurrences after a backslash do not count.
    """

    def __init__(
        self, derivatives: Derivatives, end: int | None = None, *, escaped: bool = False
    ) -> None:
        self._derivatives = derivatives
        self._end = end
        self._escaped = escaped
        self._exact: dict[Expression, int] = {}
        self._least: dict[Expression, int] = {}
        self._open: set[Expression] = set()
        self.is_exact = True
        """Whether no limit was reached so far: a count below its ``most`` is then exact."""
        self._nested = 0
        self._within: dict[tuple[Expression, int], tuple[int, int]] = {}
        self._listed: dict[Expression, tuple[list[bytes], Iterator[bytes]]] = {}

    def __len__(self) -> int:
        """Number of cached results. Any thread may read it."""
        return len(self._exact) + len(self._least) + len(self._within)

    def _branches(self, expression: Expression) -> list[_Branch]:
        branches: list[_Branch] = []
        end = self._end
        for bits, target in self._derivatives.live_row(expression):
            if end is not None and bits >> end & 1:
                branches.append((1, target, 1, True))
                bits &= ~(1 << end)
            if self._escaped and bits >> _BACKSLASH & 1:
                behind = self._derivatives.live_row(target)
                branches += [(some.bit_count(), after, 2, False) for some, after in behind]
                bits &= ~(1 << _BACKSLASH)
            if bits:
                branches.append((bits.bit_count(), target, 1, False))
        return sorted(branches, key=lambda branch: -branch[0])

    def _is_whole(self, expression: Expression) -> bool:
        return self._end is None and self._derivatives.pool.nullable[expression]

    def count(self, expression: Expression, most: int = ENDLESS) -> int:
        """Number of strings, at most ``most``; a lower bound at limits.

        Raises as ``Derivatives.row``.
        """
        if self._least.get(expression, 0) >= most > 0:
            return most
        if most <= 1:
            return int(most == 1 and self._derivatives.is_alive(expression))
        passed = []
        while not self._is_whole(expression) and expression not in self._exact:
            branches = self._branches(expression)
            if len(branches) != 1 or branches[0][0] != 1 or branches[0][3]:
                break
            passed.append(expression)
            expression = branches[0][1]
        found = self._counted(expression, most)
        if found < most:
            self._exact.update(dict.fromkeys(passed, found))
        return found

    def _counted(self, expression: Expression, most: int) -> int:
        known = self._exact.get(expression)
        if known is not None:
            return min(known, most)
        if expression in self._open:
            return most  # a cycle: infinitely many strings
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
        total = int(self._is_whole(expression))
        for width, target, _, ends in self._branches(expression):
            if total >= most:
                break
            self._derivatives.spend(1)
            total += width * (1 if ends else self.count(target, -(-(most - total) // width)))
        if total >= most:
            self._least[expression] = max(most, self._least.get(expression, 0))
            return most
        self._exact[expression] = total
        return total

    def longer(self, languages: Iterable[Expression], number: int) -> int:
        """Maximum bytes by which one of the ``number`` shortest strings of a language, or of all
        its strings, exceeds the shortest one; the maximum over ``languages``.

        Each is completed in the fewest bytes. ``UNKNOWN_LENGTH`` if that takes too many lengths.
        Raises as ``Derivatives.row``.
        """
        longer = 0
        for expression in languages:
            length, wanted = self._derivatives.length(expression), number
            if self.within(expression, length + longer, number) < number:
                wanted = self.count(expression, number)
            while self.within(expression, length + longer, wanted) < wanted:
                longer += 1
                if longer == _MOST_LONGER:
                    return UNKNOWN_LENGTH
        return longer

    def within(self, expression: Expression, length: int, most: int) -> int:
        """Number of strings, at most ``most``, that are completed in ``length`` bytes, their own
        included."""
        lengths = self._derivatives.length
        if lengths(expression) > length or most <= 0:
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
            total = int(self._is_whole(expression))
            for width, target, size, ends in self._branches(expression):
                if total >= most:
                    break
                self._derivatives.spend(1)
                left, needed = length - size, -(-(most - total) // width)
                fits = int(lengths(target) <= left) if ends else self.within(target, left, needed)
                total += width * fits
        finally:
            self._nested -= 1
        self._within[expression, length] = (total, most)
        return min(total, most)

    def strings(self, expression: Expression) -> Iterator[bytes]:
        """The strings, in the order of the bytes in which they are completed. Cached."""
        if expression not in self._listed:
            if len(self._listed) >= _MOST_LISTED:
                self._listed.clear()
            more = _listing(self._derivatives, self._end, self._escaped, expression)
            self._listed[expression] = [], more
        known, more = self._listed[expression]
        for index in count():
            if index == len(known):
                text = next(more, None)
                if text is None:
                    return
                known.append(text)
            yield known[index]


def _listing(
    derivatives: Derivatives, end: int | None, escaped: bool, expression: Expression
) -> Iterator[bytes]:
    """``Counting.strings``; not a method, to avoid a reference cycle."""
    lengths, row, nullable = derivatives.length, derivatives.live_row, derivatives.pool.nullable
    order, waiting = count(1), list[_Edge]()

    def go_on_from(here: Expression, text: bytes) -> None:
        if end is None and nullable[here]:
            heapq.heappush(waiting, (len(text), next(order), text, 0, here))
        classes = row(here)
        derivatives.spend(1 + len(classes))
        for bits, target in classes:
            bound = min(INFINITE, len(text) + 1 + lengths(target))
            heapq.heappush(waiting, (bound, next(order), text, bits, target))

    go_on_from(expression, b"")
    while waiting:
        bound, _, text, bits, target = heapq.heappop(waiting)
        if not bits:
            yield text
            continue
        byte = preferred_byte(bits)
        if bits := bits & ~(1 << byte):
            heapq.heappush(waiting, (bound, next(order), text, bits, target))
        ends = byte == end and not (escaped and (len(text) - len(text.rstrip(b"\\"))) % 2)
        text += bytes([byte])
        if ends:
            yield text
        else:
            go_on_from(target, text)
