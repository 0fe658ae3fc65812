"""Bounds of the characters in an expression's strings, by its form, and strings within bounds.

The width of a text is the number of bytes that begin a character, in UTF-8 and in JSON's escapes;
in escapes this depends on the bytes before. It does not depend on the language of the text.

A search for a string of a bounded number of characters would visit every number of characters at
every state of the pattern.
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


class Position:
    """Position inside a character; ``HEX`` + n: after ``\\u`` and n digits."""

    BETWEEN = 0
    ESCAPED = 1
    HEX = 2
    LAST_HEX = 5
    RAW = 6
    """In UTF-8 without escapes, which needs no other position."""


Bounds = dict[int, tuple[int, int]]
"""Minimum and maximum characters of strings, by the position at which they end."""

_ANYTHING: Bounds = dict.fromkeys(range(Position.RAW + 1), (0, INFINITE))


class Widths:
    """The widths of the expressions of one pool, memoised."""

    def __init__(self, pool: Nodes) -> None:
        self._pool = pool
        self._known: dict[tuple[Expression, int], Bounds] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": {}}

    def __len__(self) -> int:
        """Number of cached results. Any thread may read it."""
        return len(self._known)

    def counting(self, round_: Expression) -> int | None:
        """Position from which each ``round_`` counts as one character; None if there is none."""
        positions = (Position.BETWEEN, Position.RAW)
        return next((at for at in positions if self.by_end(round_, at) == {at: (1, 1)}), None)

    def bounds(self, expression: Expression, position: int) -> tuple[int, int]:
        """Minimum and maximum characters of strings that begin at ``position``."""
        bounds = self.by_end(expression, position).values()
        least = min((least for least, _ in bounds), default=INFINITE)
        return least, max((most for _, most in bounds), default=0)

    def by_end(self, expression: Expression, position: int) -> Bounds:
        """The bounds of the strings of ``expression`` that begin at ``position``."""
        known = self._known.get((expression, position))
        if known is None:
            known = self._known[expression, position] = self._by_end(expression, position)
        return known

    def _by_end(self, expression: Expression, position: int) -> Bounds:
        kind, operand = self._pool.kinds[expression], self._pool.operands[expression]
        if kind == Kind.EMPTY:
            return {}
        if kind == Kind.EPSILON:
            return {position: (0, 0)}
        if kind == Kind.LITERAL:
            end, width = width_of(operand, position)
            return {end: (width, width)}
        if kind == Kind.BYTES:
            return _of_byte(operand, position)
        if kind == Kind.CONCATENATION:
            bounds: Bounds = {position: (0, 0)}
            for piece in self._pool.pieces(expression):
                bounds = _either(
                    [
                        {end: _sum(before, after) for end, after in self.by_end(piece, at).items()}
                        for at, before in bounds.items()
                    ]
                )
            return bounds
        if kind == Kind.UNION:
            return _either([self.by_end(member, position) for member in operand])
        if kind == Kind.INTERSECTION:
            several = [self.by_end(member, position) for member in operand]
            result = {}
            for end in set.intersection(*map(set, several)):
                least = max(bounds[end][0] for bounds in several)
                most = min(bounds[end][1] for bounds in several)
                if least <= most:
                    result[end] = least, most
            return result
        if kind == Kind.REPETITION:
            repeated, low, high = operand
            once = self.by_end(repeated, position)
            if not once:
                return {position: (0, 0)} if low == 0 else {}
            if once.keys() != {position}:
                return _ANYTHING
            least, most = once[position]
            rounds = INFINITE if high is None else high
            return {position: (min(INFINITE, least * low), min(INFINITE, most * rounds))}
        return _ANYTHING


def width_of(text: bytes, position: int) -> tuple[int, int]:
    """The position after ``text``, which begins at ``position``, and its width."""
    width = 0
    for byte in text:
        ((position, (begins, _)),) = _of_byte(1 << byte, position).items()
        width += begins
    return position, width


def _of_byte(members: ByteSet, position: int) -> Bounds:
    if position == Position.ESCAPED:
        after = {Position.HEX: members & _U, Position.BETWEEN: members & ~_U}
        return {end: (0, 0) for end, some in after.items() if some}
    if Position.HEX <= position <= Position.LAST_HEX:
        return {Position.BETWEEN if position == Position.LAST_HEX else position + 1: (0, 0)}
    escaping = members & _BACKSLASH if position == Position.BETWEEN else 0
    continuing, others = members & _CONTINUING, members & ~_CONTINUING & ~escaping
    bounds = {}
    if continuing or others:
        bounds[position] = (0 if continuing else 1, 1 if others else 0)
    if escaping:
        bounds[Position.ESCAPED] = (1, 1)
    return bounds


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(INFINITE, one[0] + other[0]), min(INFINITE, one[1] + other[1])


def _either(several: list[Bounds]) -> Bounds:
    result: Bounds = {}
    for bounds in several:
        for end, (least, most) in bounds.items():
            known = result.get(end, (least, most))
            result[end] = min(least, known[0]), max(most, known[1])
    return result


_MOST_MEMBERS = 8
"""Maximum members of a union that are tried."""

_FITTING_WORK = 10
"""Steps of work for a fit, besides those for the length of its text."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A string of a pattern within its bounds, if there is one."""

    text: bytes | None
    """Some string; None if there surely is none."""
    is_shortest: bool = False


NOTHING_FITS = Fit(None)


def fit(derivatives: Derivatives, counted: Counted) -> Fit | None:
    """A string of the pattern with an allowed number of rounds; None if that takes a search."""
    pattern, low = counted.pattern, counted.low
    high = INFINITE - 1 if counted.high is None else counted.high
    position = derivatives.widths.counting(counted.round)
    if position is not None:
        least, most = derivatives.widths.bounds(pattern, position)
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
    """Number of rounds in ``text``; None if unknown, or if it does not consist of rounds."""
    if not text.translate(None, counted.letters):
        return len(text)
    position = derivatives.widths.counting(counted.round)
    if position is None:
        return None
    here = derivatives.pool.repeat(counted.round)
    derivatives.spend(3 * len(text))
    for byte in text:
        here = derivatives.derivative_of(here, byte)
    return width_of(text, position)[1] if derivatives.pool.nullable[here] else None


class _Stretching:
    """Finds a string that is longer by ``missing`` letters, or by up to ``slack`` more."""

    def __init__(self, derivatives: Derivatives, letters: bytes, missing: int, slack: int) -> None:
        self._derivatives = derivatives
        self._letters = letters
        self.missing = missing
        self._slack = slack

    def text(self, expression: Expression) -> bytes:
        """A shortest string, made longer by up to ``missing`` letters, which is reduced by their
        number."""
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
        """A shortest string with a repeated letter whose derivative is the same expression."""
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
    """A letter by which the derivative of ``here`` is ``here`` itself; None if there is none."""
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
