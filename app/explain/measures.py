"""Facts about every expression of a pool, and the texts that the graph draws as one choice."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from app.constraint.json.text import CHARACTER
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE, Expression, Kind, byte_set
from app.explain.spelling import Spelling

_OF_NUMBERS = byte_set(b"+-.0123456789Ee")
_MANY = 1 << 40


class Facts(NamedTuple):
    texts: int | None
    """Number of texts of a language that is a list of them (``pool.one_of``); else None."""
    numeric: bool
    """Whether all its strings are made of the characters of JSON numbers."""
    quoted: bool
    """Whether it may contain an unescaped quotation mark; true for rules."""


class Measures:
    """Facts by expression, computed as the pool grows.

    Operands come before what they are part of, so one ascending pass does without recursion.
    """

    def __init__(self, derivatives: Derivatives) -> None:
        self._pool = derivatives.pool
        self._derivatives = derivatives
        self._facts: list[Facts] = []

    def facts(self, expression: Expression) -> Facts:
        for each in range(len(self._facts), len(self._pool)):
            self._facts.append(Facts(self._count(each), self._numeric(each), self._quoted(each)))
        return self._facts[expression]

    def longest(self, root: Expression) -> tuple[int | None, bool]:
        """Bytes of a longest string (None: unbounded), and whether that is exact.

        Of intersections it is an upper bound. Cost: nodes times the depth of rules.
        """
        bodies = self._pool.bodies
        rules, exact = [0] * len(bodies), True
        for turn in range(2 * len(bodies) + 3):
            lengths, exact = self._longest_of_all(rules)
            now = [lengths[body] if body is not None else 0 for body in bodies]
            if now == rules:
                break
            # A length that still grows after every rule had its turn is unbounded.
            rules = [
                INFINITE if turn > len(bodies) and new > old else new
                for new, old in zip(now, rules, strict=True)
            ]
        length = lengths[root]
        return (None if length >= INFINITE else length), exact

    def _longest_of_all(self, rules: list[int]) -> tuple[list[int], bool]:
        pool, lengths, exact = self._pool, [0] * len(self._pool), True
        for expression in range(len(pool)):
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind == Kind.COMPLEMENT:
                lengths[expression] = INFINITE
            elif self._derivatives.length(expression) >= INFINITE:
                continue
            elif kind == Kind.LITERAL:
                lengths[expression] = len(operand)
            elif kind == Kind.BYTES:
                lengths[expression] = 1
            elif kind == Kind.CONCATENATION:
                lengths[expression] = min(INFINITE, lengths[operand[0]] + lengths[operand[1]])
            elif kind == Kind.UNION:
                lengths[expression] = max(lengths[member] for member in operand)
            elif kind == Kind.INTERSECTION:
                exact = False
                lengths[expression] = min(lengths[member] for member in operand)
            elif kind == Kind.REPETITION:
                high = INFINITE if operand[2] is None else operand[2]
                lengths[expression] = min(INFINITE, lengths[operand[0]] * high)
            elif kind == Kind.RULE:
                lengths[expression] = rules[operand]
            elif kind == Kind.HOLE:
                lengths[expression] = lengths[operand[1]]
            elif kind == Kind.MARKED:
                lengths[expression] = lengths[operand[0]]
            elif kind == Kind.REMAINDER:
                lengths[expression] = operand.longest
            elif kind == Kind.DISTINCT:
                items, between, _, high = operand
                largest = sorted((lengths[item] for item in items), reverse=True)[:high]
                lengths[expression] = min(INFINITE, sum(largest) + lengths[between] * (high - 1))
            elif kind == Kind.CASES:
                exact = False
                longest = [max([lengths[each] for each in table]) for table in operand.parts]
                lengths[expression] = min(INFINITE, sum(longest))
        return lengths, exact

    def _count(self, expression: Expression) -> int | None:
        kind, operand = self._pool.kinds[expression], self._pool.operands[expression]
        if kind in (Kind.LITERAL, Kind.EPSILON):
            return 1
        if kind == Kind.EMPTY:
            return 0
        if kind == Kind.BYTES:
            return int(operand).bit_count()
        if kind == Kind.UNION:
            counts = [self._facts[member].texts for member in operand]
            known = [count for count in counts if count is not None]
            return min(sum(known), _MANY) if len(known) == len(counts) else None
        if kind == Kind.MARKED:
            inside: Expression = operand[0]
            return self._facts[inside].texts
        if kind == Kind.CONCATENATION:
            # Part of a tree of texts; a choice with a continuation is a structure, not a list.
            listed = self._pool.kinds[operand[0]] == Kind.LITERAL
            return self._facts[operand[1]].texts if listed else None
        return None

    def _numeric(self, expression: Expression) -> bool:
        kind, operand = self._pool.kinds[expression], self._pool.operands[expression]
        if kind == Kind.LITERAL:
            return byte_set(operand) & ~_OF_NUMBERS == 0
        if kind == Kind.BYTES:
            return bool(operand & ~_OF_NUMBERS == 0)
        if kind in (Kind.COMPLEMENT, Kind.RULE, Kind.DISTINCT, Kind.CASES):
            return False
        numeric = [self._facts[part].numeric for part in self._pool.parts(expression)]
        return any(numeric) if kind == Kind.INTERSECTION else all(numeric)

    def _quoted(self, expression: Expression) -> bool:
        kind, operand = self._pool.kinds[expression], self._pool.operands[expression]
        if kind == Kind.LITERAL:
            return b'"' in operand.replace(b"\\\\", b"").replace(b'\\"', b"")
        if kind in (Kind.RULE, Kind.DISTINCT, Kind.CASES):
            return True
        return any(self._facts[part].quoted for part in self._pool.parts(expression))


_LISTED = 40
"""Maximum texts of an enum that are drawn as separate edges."""


class Mode(IntEnum):
    """Position of a state relative to JSON strings."""

    OUTSIDE = 0
    """Outside JSON strings."""
    INSIDE = 1
    ESCAPED = 2
    """Inside, after a backslash."""
    PLAIN = 3
    """Text that is not JSON."""

    def after(self, text: bytes) -> Mode:
        """The mode after ``text``."""
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
    """Choices of free text in one pool: which expressions are one, and their labels."""

    def __init__(self, derivatives: Derivatives) -> None:
        self._derivatives = derivatives
        self._pool = derivatives.pool
        self._measures = Measures(derivatives)
        self._spelling = Spelling(derivatives)

    def is_text(self, head: Expression, mode: Mode) -> bool:
        """Whether ``head`` is to be one choice: a number, or free text inside a string."""
        if self._pool.kinds[head] in (Kind.LITERAL, Kind.EPSILON) or not self._pool.regular[head]:
            return False
        texts, numeric, quoted = self._measures.facts(head)
        if texts is not None:
            return texts > _LISTED
        if mode == Mode.OUTSIDE:
            return numeric
        return mode == Mode.PLAIN or (mode == Mode.INSIDE and not quoted)

    def label(self, parts: list[Expression], mode: Mode) -> str:
        """The label of a choice of ``parts``, one after the other."""
        whole = self._pool.concatenate(*parts)
        label = self._spelling.pattern(whole) if len(parts) > 1 and mode != Mode.OUTSIDE else None
        return label or " ".join(self._part_label(part, mode) for part in parts)

    def _part_label(self, expression: Expression, mode: Mode) -> str:
        kind, operand = self._pool.kinds[expression], self._pool.operands[expression]
        if kind == Kind.REPETITION and operand[0] == self._pool.landmarks.get(CHARACTER):
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
        """Number of texts that an intersection excludes, if it is one with a complement."""
        complements = [part for part in parts if self._pool.kinds[part] == Kind.COMPLEMENT]
        if len(parts) != 2 or len(complements) != 1:
            return None
        return self._measures.facts(self._pool.operands[complements[0]]).texts


def _spell_bounds(low: int, high: int | None, unit: str) -> str:
    if high is None or high >= INFINITE:
        return f" of {low} or more {unit}" if low else ""
    return f" of {low} {unit}" if low == high else f" of {low} to {high} {unit}"
