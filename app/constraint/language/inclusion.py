"""Cheap tests whether one language lies within another, to simplify unions and intersections."""

from __future__ import annotations

from app.constraint.language.nodes import ByteSet, Expression, Kind, Nodes

Spellings = tuple[tuple[ByteSet, ...], ...]
"""Alternative sequences of byte sets."""

_LONGEST_CHARACTER = 12
"""Bytes of the longest character, in JSON's escapes."""
_MOST_SPELLINGS = 1_000


class Inclusion:
    """Tests inclusion in unbounded repetitions, such as any text of a string. Memoised.

    Refers to the lists of the pool and not to the pool, which refers to this object: programs have
    no reference cycles and are freed without the garbage collector.
    """

    def __init__(self, pool: Nodes) -> None:
        self._epsilon = pool.epsilon
        self._kinds, self._operands = pool.kinds, pool.operands
        self._known: dict[tuple[Expression, Expression], bool] = {}
        self._spelled: dict[Expression, Spellings | None] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._spelled)

    def letters(self, star: Expression) -> ByteSet:
        """The single bytes that an unbounded repetition repeats; 0 for other forms."""
        if self._kinds[star] != Kind.REPETITION or self._operands[star][1:] != (0, None):
            return 0
        inner = self._operands[star][0]
        if self._kinds[inner] == Kind.BYTES:
            return int(self._operands[inner])
        if self._kinds[inner] != Kind.UNION:
            return 0
        parts = (part for part in self._operands[inner] if self._kinds[part] == Kind.BYTES)
        return int(self._operands[next(parts, self._epsilon)] or 0)

    def is_within(self, expression: Expression, star: Expression) -> bool:
        """Whether surely every string of ``expression`` is in the unbounded repetition ``star``.

        Recognises expressions made of its letters, of the repeated part, and of parts of that, such
        as characters in UTF-8; returns False for others.
        """
        known = self._known.get((expression, star))
        if known is None:
            known = self._is_within_new(expression, star)
            self._known[expression, star] = known
        return known

    def _is_within_new(self, expression: Expression, star: Expression) -> bool:
        if self._are_some_of(expression, self._operands[star][0]):
            return True
        letters, inner = self.letters(star), self._operands[star][0]
        while self._kinds[expression] == Kind.CONCATENATION:
            head, expression = self._operands[expression]
            if not self.is_within(head, star):
                return False
        kind, operand = self._kinds[expression], self._operands[expression]
        if expression in (star, inner, self._epsilon):
            return True
        if kind == Kind.LITERAL:
            return all(letters >> byte & 1 for byte in operand)
        if kind == Kind.BYTES:
            return not operand & ~letters
        if kind == Kind.UNION:
            return all(self.is_within(member, star) for member in operand)
        if kind == Kind.INTERSECTION:
            return any(self.is_within(member, star) for member in operand)
        return kind == Kind.REPETITION and self.is_within(operand[0], star)

    def _are_some_of(self, some: Expression, all_: Expression) -> bool:
        """Whether each of the few spellings of ``some`` is within one of ``all_``."""
        spellings, others = self.spellings(some), self.spellings(all_)
        if spellings is None or others is None or some == self._epsilon:
            return False
        by_size: dict[int, list[tuple[ByteSet, ...]]] = {}
        for other in others:
            by_size.setdefault(len(other), []).append(other)
        return all(
            any(
                not any(bits & ~more for bits, more in zip(each, other, strict=True))
                for other in by_size.get(len(each), ())
            )
            for each in spellings
        )

    def spellings(self, expression: Expression) -> Spellings | None:
        """A language as a few short sequences of byte sets; None for other languages."""
        if expression not in self._spelled:
            self._spelled[expression] = self._new_spellings(expression)
        return self._spelled[expression]

    def _new_spellings(self, expression: Expression) -> Spellings | None:
        kind, operand = self._kinds[expression], self._operands[expression]
        if kind == Kind.BYTES:
            return ((operand,),)
        if kind == Kind.LITERAL and len(operand) <= _LONGEST_CHARACTER:
            return (tuple(1 << byte for byte in operand),)
        if kind == Kind.REPETITION and operand[1] == operand[2] <= _LONGEST_CHARACTER:
            parts = [self.spellings(operand[0])] * operand[1]
        elif kind == Kind.CONCATENATION:
            parts = [self.spellings(part) for part in operand]
        elif kind == Kind.UNION and len(operand) <= _MOST_SPELLINGS:
            members = [self.spellings(member) for member in operand]
            if any(member is None for member in members):
                return None
            union = tuple([each for member in members for each in member or ()])
            return union if len(union) <= _MOST_SPELLINGS else None
        else:
            return None
        sequences: Spellings = ((),)
        for part in parts:
            if part is None or len(sequences) * len(part) > _MOST_SPELLINGS:
                return None
            sequences = tuple([first + second for first in sequences for second in part])
        return sequences if len(sequences[0]) <= 2 * _LONGEST_CHARACTER else None

    def contradict(self, wanted: set[Expression], excluded: set[Expression]) -> bool:
        """Whether a member of ``wanted`` plainly lies within one of ``excluded``."""
        if not wanted.isdisjoint(excluded):
            return True
        stars = [member for member in excluded if self.letters(member)]
        return any(self.is_within(member, star) for star in stars for member in wanted)
