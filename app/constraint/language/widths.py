"""How many characters the strings of an expression have, at least and at most, by its form alone.

Bytes weigh 1 where they begin a character and 0 elsewhere: in UTF-8, and in the escapes of JSON,
where it depends on the bytes before. So a text has a weight whatever language it is found in.
"""

from __future__ import annotations

from typing import Any

from app.constraint.language.nodes import INFINITE, ByteSet, Expression, Kind, Nodes, byte_range

_CONTINUING = byte_range(0x80, 0xBF)
_BACKSLASH: ByteSet = 1 << 0x5C
_U: ByteSet = 1 << ord("u")


class Place:
    """Where in a character a text stands; ``HEX`` and more: so many digits after ``\\u`` less."""

    BETWEEN = 0
    ESCAPED = 1
    HEX = 2
    LAST_HEX = 5
    RAW = 6
    """In UTF-8 without escapes, where nothing is to be remembered."""


Widths = dict[int, tuple[int, int]]
"""By the place where strings end: least and most characters. No entry: none ends there."""

_ANYTHING: Widths = dict.fromkeys(range(Place.RAW + 1), (0, INFINITE))


class Weights:
    """The widths of the expressions of one pool, memoised."""

    def __init__(self, pool: Nodes) -> None:
        self._pool = pool
        self._known: dict[tuple[Expression, int], Widths] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": {}}

    def __len__(self) -> int:
        """How much is remembered. Any thread may ask."""
        return len(self._known)

    def counting(self, round_: Expression) -> int | None:
        """Where to begin counting so that each ``round_`` is one character; None if nowhere."""
        for place in (Place.BETWEEN, Place.RAW):
            if self.widths(round_, place) == {place: (1, 1)}:
                return place
        return None

    def bounds(self, expression: Expression, place: int) -> tuple[int, int]:
        """The least and most characters of any string that begins at ``place``."""
        widths = self.widths(expression, place).values()
        return min((least for least, _ in widths), default=INFINITE), max(
            (most for _, most in widths), default=0
        )

    def widths(self, expression: Expression, place: int) -> Widths:
        """The widths of the strings of ``expression`` that begin at ``place``."""
        known = self._known.get((expression, place))
        if known is None:
            known = self._known[expression, place] = self._widths(expression, place)
        return known

    def _widths(self, expression: Expression, place: int) -> Widths:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.EMPTY:
            return {}
        if kind == Kind.EPSILON:
            return {place: (0, 0)}
        if kind == Kind.LITERAL:
            end, width = weighed(operand, place)
            return {end: (width, width)}
        if kind == Kind.BYTES:
            return _of_byte(operand, place)
        if kind == Kind.CONCATENATION:
            pieces = self._pool.pieces(expression)
            widths: Widths = {place: (0, 0)}
            for piece in pieces:
                widths = _either(
                    [
                        {end: _sum(before, after) for end, after in self.widths(piece, at).items()}
                        for at, before in widths.items()
                    ]
                )
            return widths
        if kind == Kind.UNION:
            return _either([self.widths(member, place) for member in operand])
        if kind == Kind.INTERSECTION:
            several = [self.widths(member, place) for member in operand]
            result = {}
            for end in set.intersection(*(set(widths) for widths in several)):
                least = max(widths[end][0] for widths in several)
                most = min(widths[end][1] for widths in several)
                if least <= most:
                    result[end] = least, most
            return result
        if kind == Kind.REPETITION:
            repeated, low, high = operand
            once = self.widths(repeated, place)
            if not once:
                return {place: (0, 0)} if low == 0 else {}
            if once.keys() != {place}:
                return _ANYTHING
            least, most = once[place]
            rounds = INFINITE if high is None else high
            return {place: (min(INFINITE, least * low), min(INFINITE, most * rounds))}
        return _ANYTHING


def weighed(text: bytes, place: int) -> tuple[int, int]:
    """Where ``text`` ends that begins at ``place``, and how many characters begin in it."""
    width = 0
    for byte in text:
        ((place, (weight, _)),) = _of_byte(1 << byte, place).items()
        width += weight
    return place, width


def _of_byte(members: ByteSet, place: int) -> Widths:
    if place == Place.ESCAPED:
        after = {Place.HEX: members & _U, Place.BETWEEN: members & ~_U}
        return {end: (0, 0) for end, some in after.items() if some}
    if Place.HEX <= place <= Place.LAST_HEX:
        return {Place.BETWEEN if place == Place.LAST_HEX else place + 1: (0, 0)}
    escaping = members & _BACKSLASH if place == Place.BETWEEN else 0
    continuing, others = members & _CONTINUING, members & ~_CONTINUING & ~escaping
    widths = {}
    if continuing or others:
        widths[place] = (0 if continuing else 1, 1 if others else 0)
    if escaping:
        widths[Place.ESCAPED] = (1, 1)
    return widths


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(INFINITE, one[0] + other[0]), min(INFINITE, one[1] + other[1])


def _either(several: list[Widths]) -> Widths:
    result: Widths = {}
    for widths in several:
        for end, (least, most) in widths.items():
            known = result.get(end, (least, most))
            result[end] = min(least, known[0]), max(most, known[1])
    return result
