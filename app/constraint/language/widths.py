"""Bounds of the characters in an expression's strings, by its form, and strings within bounds.

Bytes weigh 1 where they begin a character and 0 elsewhere: in UTF-8, and in the escapes of JSON,
where it depends on the bytes before. So a text has a weight whatever language it is found in.

A search for a string of a bounded number of characters would go through every number of characters
at every place of the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.constraint.language.expressions import (
    INFINITE,
    ByteSet,
    Counted,
    Expression,
    Kind,
    byte_range,
)
from app.constraint.language.nodes import Nodes

if TYPE_CHECKING:
    from app.constraint.language.derivatives import Derivatives


_CONTINUING = byte_range(0x80, 0xBF)
_BACKSLASH: ByteSet = 1 << 0x5C
_U: ByteSet = 1 << ord("u")


class Place:
    """Position inside a character; ``HEX`` + n: after ``\\u`` and n digits."""

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
        places = (Place.BETWEEN, Place.RAW)
        return next((at for at in places if self.widths(round_, at) == {at: (1, 1)}), None)

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
        kind, operand = self._pool.kinds[expression], self._pool.operands[expression]
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
            widths: Widths = {place: (0, 0)}
            for piece in self._pool.pieces(expression):
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
    """The place after ``text`` that begins at ``place``, and the characters that begin in it."""
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


_MOST_MEMBERS = 8
"""Members of a union that are tried."""

_FITTING_WORK = 10
"""Steps of work that a fit costs, besides what grows with its text."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A string of a pattern within its bounds, if there is one."""

    text: bytes | None
    """Some string; None where there surely is none."""
    is_shortest: bool = False


NOTHING_FITS = Fit(None)


def fit(derivatives: Derivatives, counted: Counted) -> Fit | None:
    """A string of the pattern with an allowed number of characters; None if that is not plain."""
    pattern, low = counted.pattern, counted.low
    high = INFINITE - 1 if counted.high is None else counted.high
    place = derivatives.weights.counting(counted.round)
    if place is not None:
        least, most = derivatives.weights.bounds(pattern, place)
        if least > high or most < low:
            return NOTHING_FITS
    if not derivatives.is_alive(pattern):
        return NOTHING_FITS
    text = derivatives.shortest(pattern)
    derivatives.spend(_FITTING_WORK + len(text) // 16)
    width = rounds_in(derivatives, counted, text)
    if width is None or width > high:
        return None
    if width < low:
        text = _Stretching(derivatives, counted.letters, low - width, high - low).text(pattern)
        width = rounds_in(derivatives, counted, text)
        if width is None or not low <= width <= high:
            return None
    return Fit(text, len(text) <= max(derivatives.length(pattern), low))


def rounds_in(derivatives: Derivatives, counted: Counted, text: bytes) -> int | None:
    """Number of rounds in ``text``; None if it is not made of rounds, or that is not known."""
    if not text.translate(None, counted.letters):
        return len(text)
    place = derivatives.weights.counting(counted.round)
    if place is None:
        return None
    here = derivatives.pool.repeat(counted.round)
    derivatives.spend(3 * len(text))
    for byte in text:
        here = derivatives.derivative_of(here, byte)
    return weighed(text, place)[1] if derivatives.pool.nullable[here] else None


class _Stretching:
    """Looks for a string that is longer by ``missing`` letters, or by up to ``slack`` more."""

    def __init__(self, derivatives: Derivatives, letters: bytes, missing: int, slack: int) -> None:
        self._derivatives = derivatives
        self._letters = letters
        self.missing = missing
        self._slack = slack

    def text(self, expression: Expression) -> bytes:
        """A shortest string, longer by ``missing`` letters, or by as many as are found; these
        are taken off ``missing``."""
        derivatives, pool = self._derivatives, self._derivatives.pool
        derivatives.spend(1)
        if not self.missing:
            return derivatives.shortest(expression)
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.CONCATENATION:
            return b"".join([self.text(piece) for piece in pool.pieces(expression)])
        if kind == Kind.REPETITION:
            return self._repeated(*operand)
        if kind == Kind.UNION:
            return self._member(expression)
        if kind == Kind.INTERSECTION:
            return self._pumped(expression)
        return derivatives.shortest(expression)

    def _repeated(self, inner: Expression, low: int, high: int | None) -> bytes:
        once = self._derivatives.shortest(inner)
        size = len(once)
        if not size or once.translate(None, self._letters):
            return once * low
        more, left = divmod(self.missing, size)
        if left and size - left <= self._slack:
            more += 1
        more = more if high is None else min(more, high - low)
        self._take(more * size)
        rounds = low + more
        if not self.missing or not rounds:
            return once * rounds
        before = self.missing
        longer = self.text(inner)
        grown = before - self.missing
        times = min(rounds - 1, self.missing // grown) if grown else 0
        self._take(times * grown)
        return once * (rounds - 1 - times) + longer * (times + 1)

    def _take(self, letters: int) -> None:
        self._slack -= max(letters - self.missing, 0)
        self.missing = max(self.missing - letters, 0)

    def _member(self, union: Expression) -> bytes:
        derivatives, missing, slack = self._derivatives, self.missing, self._slack
        shortest = derivatives.length(union)
        derivatives.spend(1 + len(derivatives.pool.operands[union]) // 2)
        members = sorted(derivatives.pool.operands[union], key=derivatives.length)[:_MOST_MEMBERS]
        for member in members:
            longer = derivatives.length(member) - shortest
            if longer <= missing + slack:
                self._take(longer)
                text = self.text(member)
                if not self.missing:
                    return text
            self.missing, self._slack = missing, slack
        return derivatives.shortest(union)

    def _pumped(self, intersection: Expression) -> bytes:
        """A shortest string, with a letter that leads back to its own place repeated there."""
        derivatives, here = self._derivatives, intersection
        text = derivatives.shortest(intersection)
        for position, byte in enumerate(text):
            letter = letter_back(derivatives, here, self._letters)
            if letter is not None:
                letters, self.missing = letter * self.missing, 0
                return text[:position] + letters + text[position:]
            derivatives.spend(2)
            here = derivatives.derivative_of(here, byte)
        return text


def letter_back(derivatives: Derivatives, here: Expression, letters: bytes) -> bytes | None:
    """A letter by which the derivative is the language itself; None if there is none."""
    for bits, target in derivatives.row(here):
        if target == here:
            for letter in letters:
                if bits >> letter & 1:
                    return bytes([letter])
    return None


def is_elastic(derivatives: Derivatives, expression: Expression, most: int, letters: bytes) -> bool:
    """Whether a shortest string can grow by any number of ``letters`` up to ``most``."""
    pool = derivatives.pool
    kind, operand = pool.kinds[expression], pool.operands[expression]
    if kind == Kind.CONCATENATION:
        return any(is_elastic(derivatives, part, most, letters) for part in pool.pieces(expression))
    if kind == Kind.UNION:
        return is_elastic(derivatives, min(operand, key=derivatives.length), most, letters)
    if kind == Kind.INTERSECTION:
        return letter_back(derivatives, expression, letters) is not None
    if kind != Kind.REPETITION:
        return False
    inner, low, high = operand
    if derivatives.length(inner) != 1 or (high is not None and high - low < most):
        return False
    return derivatives.shortest(inner) in letters
