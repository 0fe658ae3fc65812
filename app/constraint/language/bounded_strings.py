"""Strings of a pattern that have a bounded number of characters, by the pattern's form alone.

A search would go through every number of characters at every place of the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.constraint.language.expressions import INFINITE, Counted, Expression, Kind
from app.constraint.language.widths import weighed

if TYPE_CHECKING:
    from app.constraint.language.derivatives import Derivatives

_MOST_MEMBERS = 8
"""Members of a union that are tried."""

_FITTING_WORK = 10
"""Steps of work that a fit costs, besides what grows with its text."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a pattern has within its bounds."""

    text: bytes | None
    """Some string; None where there surely is none."""
    is_shortest: bool = False


NOTHING_FITS = Fit(None)


def fit(derivatives: Derivatives, counted: Counted) -> Fit | None:
    """Whether the pattern has a string of so many characters; None where its form does not say."""
    pattern, low = counted.pattern, counted.low
    high = INFINITE - 1 if counted.high is None else counted.high
    weights = derivatives.weights
    place = weights.counting(counted.round)
    if place is not None:
        least, most = weights.bounds(pattern, place)
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
    """How many rounds ``text`` is; None where it is not made of such, or that is not known."""
    if not text.translate(None, counted.letters):
        return len(text)
    pool = derivatives.pool
    place = derivatives.weights.counting(counted.round)
    if place is None:
        return None
    here = pool.repeat(counted.round)
    derivatives.spend(3 * len(text))
    for byte in text:
        here = derivatives.derivative_of(here, byte)
    return weighed(text, place)[1] if pool.nullable[here] else None


class _Stretching:
    """Looks for a string that is longer by ``missing`` letters, or by up to ``slack`` more."""

    def __init__(self, derivatives: Derivatives, letters: bytes, missing: int, slack: int) -> None:
        self._derivatives = derivatives
        self._letters = letters
        self.missing = missing
        self._slack = slack

    def text(self, expression: Expression) -> bytes:
        """A string that has as many letters more than a shortest one as are ``missing``, or as
        are found. They are missing no more."""
        derivatives, pool = self._derivatives, self._derivatives.pool
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
        """A shortest string, and at one place of it the letter that goes back to that place."""
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
    """A letter by which a language goes on as itself."""
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
