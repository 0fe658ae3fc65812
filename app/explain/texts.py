"""Choices that are one way whatever they spell: free text, numbers, long lists of texts."""

from __future__ import annotations

from enum import IntEnum

from app.constraint.json.text import CHARACTER
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE, Expression, Kind
from app.explain.measures import Measures
from app.explain.spelling import Spelling

_LISTED = 40
"""Texts of an enum up to which each is an edge of its own."""


class Mode(IntEnum):
    """Where a state stands."""

    OUTSIDE = 0
    """Of JSON strings."""
    INSIDE = 1
    ESCAPED = 2
    """Inside, after a backslash."""
    PLAIN = 3
    """Not in JSON."""

    def after(self, text: bytes) -> Mode:
        """Where a state stands after ``text``."""
        mode = self
        if mode == Mode.PLAIN:
            return mode
        for byte in text:
            if mode == Mode.ESCAPED:
                mode = Mode.INSIDE
            elif mode == Mode.INSIDE:
                mode = {0x22: Mode.OUTSIDE, 0x5C: Mode.ESCAPED}.get(byte, Mode.INSIDE)
            elif byte == 0x22:
                mode = Mode.INSIDE
        return mode


class Texts:
    """Knows such choices in one pool, and what to call them."""

    def __init__(self, derivatives: Derivatives) -> None:
        self._derivatives = derivatives
        self._pool = derivatives.pool
        self._measures = Measures(derivatives)
        self._spelling = Spelling(derivatives)

    def is_text(self, head: Expression, mode: Mode) -> bool:
        """Whether ``head`` is to be one choice: a number, or free text inside a string."""
        pool = self._pool
        if pool.kinds[head] in (Kind.LITERAL, Kind.EPSILON) or not pool.regular[head]:
            return False
        texts, numeric, quoted = self._measures.facts(head)
        if texts is not None:
            return texts > _LISTED
        if mode == Mode.OUTSIDE:
            return numeric
        return mode == Mode.PLAIN or (mode == Mode.INSIDE and not quoted)

    def label(self, parts: list[Expression], mode: Mode) -> str:
        """What to call a choice of ``parts``, one after the other."""
        whole = self._pool.concatenate(*parts)
        label = self._spelling.pattern(whole) if len(parts) > 1 and mode != Mode.OUTSIDE else None
        return label or " ".join(self._part_label(part, mode) for part in parts)

    def _part_label(self, expression: Expression, mode: Mode) -> str:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.REPETITION and operand[0] == pool.landmarks.get(CHARACTER):
            return "string" + _spell_bounds(operand[1], operand[2], "characters")
        facts = self._measures.facts(expression)
        if facts.texts is not None and facts.texts > _LISTED:
            return f"one of {facts.texts} texts"
        if mode == Mode.OUTSIDE and facts.numeric:
            pattern = self._spelling.pattern(expression, 24)
            return f"number {pattern}" if pattern else "number"
        if kind == Kind.INTERSECTION and (taken := self._excluded(operand)):
            return f"text, but none of {taken} names"
        low = self._derivatives.length(expression)
        return self._spelling.pattern(expression) or f"text{_spell_bounds(low, None, 'bytes')}"

    def _excluded(self, parts: tuple[Expression, ...]) -> int | None:
        """How many texts an intersection leaves out, where it is one of all texts but those."""
        complements = [part for part in parts if self._pool.kinds[part] == Kind.COMPLEMENT]
        if len(parts) != 2 or len(complements) != 1:
            return None
        return self._measures.facts(self._pool.operands[complements[0]]).texts


def _spell_bounds(low: int, high: int | None, unit: str) -> str:
    if high is None or high >= INFINITE:
        return f" of {low} or more {unit}" if low else ""
    return f" of {low} {unit}" if low == high else f" of {low} to {high} {unit}"
