"""Whether one language plainly lies within another: what unions absorb and intersections lose."""

from __future__ import annotations

from app.constraint.language.nodes import ByteSet, Expression, Kind, Nodes


class Inclusion:
    """Looks at expressions inside free repetitions, such as any text of a string. Memoised.

    Refers to the lists of the pool and not to the pool, which refers to this: what is compiled
    holds no cycles, and is freed without the garbage collector.
    """

    def __init__(self, pool: Nodes) -> None:
        self._epsilon = pool.epsilon
        self._kinds, self._operands = pool.kinds, pool.operands
        self._known: dict[tuple[Expression, Expression], bool] = {}

    def __len__(self) -> int:
        return len(self._known)

    def without_absorbed(self, members: set[Expression]) -> set[Expression]:
        """The members of a union without those that lie within a free repetition among them."""
        for star in [member for member in members if self.letters(member)]:
            members = {m for m in members if m == star or not self.is_within(m, star)}
        return members

    def letters(self, star: Expression) -> ByteSet:
        """The bytes that a repetition without bounds repeats; 0 where it is none."""
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
        """Whether surely every string of the language is one of a free repetition.

        Sees through what is made of its letters and of what it repeats; not through the rest.
        """
        known = self._known.get((expression, star))
        if known is None:
            known = self._is_within_new(expression, star)
            self._known[expression, star] = known
        return known

    def _is_within_new(self, expression: Expression, star: Expression) -> bool:
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
        if kind == Kind.REPETITION:
            return self.is_within(operand[0], star)
        return False

    def contradict(self, wanted: set[Expression], excluded: set[Expression]) -> bool:
        """Whether something wanted plainly lies within something excluded."""
        if not wanted.isdisjoint(excluded):
            return True
        stars = [member for member in excluded if self.letters(member)]
        return any(self.is_within(member, star) for star in stars for member in wanted)
