"""Expressions whose values are marked with their places in a schema, taken apart and unmarked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.constraint.language.expressions import Expression, ExpressionPool, Kind, Mark


@dataclass(frozen=True, slots=True)
class Split:
    """The first part of an expression, and the marks around it."""

    head: Expression
    """The first part: no concatenation, and not marked unless ``is_whole``."""
    around: Sequence[tuple[int | None, Expression]]
    """From the inside out: a mark around all so far (None: no mark), and the rest after it."""

    def then(self, pool: ExpressionPool, head: Expression) -> Expression:
        """The expression with ``head`` in the place of its own."""
        result = head
        for mark, tail in self.around:
            if mark is not None:
                result = pool.marked(result, mark)
            result = pool.concatenate(result, tail)
        return result


class Marks:
    """Looks through the marks of one pool."""

    def __init__(self, pool: ExpressionPool, is_whole: Callable[[Expression], bool]) -> None:
        """``is_whole``: whether a marked expression is not to be split."""
        self._pool = pool
        self._is_whole = is_whole
        self._pointers = dict(zip(pool.pointers.values(), pool.pointers, strict=True))

    def split(self, expression: Expression) -> Split:
        pool = self._pool
        around: list[tuple[int | None, Expression]] = []
        while True:
            head, tail = expression, pool.epsilon
            if pool.kinds[expression] == Kind.CONCATENATION:
                head, tail = pool.operands[expression]
            if pool.kinds[head] != Kind.MARKED or self._is_whole(head):
                around.append((None, tail))
                return Split(head, around[::-1])
            inside, mark = pool.operands[head]
            if inside == pool.epsilon:  # an item that is whole is still marked as begun
                expression = tail
            else:
                around += [(None, tail), (mark, pool.epsilon)]
                expression = inside

    def pointer(self, split: Split) -> str | None:
        """The place of the innermost value around the head, None where none is marked."""
        marks = [mark for mark, _ in split.around if mark is not None and mark >= Mark.POINTER]
        return self._pointers[marks[0]] if marks else None

    def pointer_of(self, marked: Expression) -> str | None:
        """Pointer to the place of a marked value, or None."""
        return self._pointers.get(self._pool.operands[marked][1])


class Unmarked:
    """The expressions of one pool without their marks: equal states at several places are one."""

    def __init__(self, pool: ExpressionPool) -> None:
        self._pool = pool
        self._plain: list[Expression] = []

    def plain(self, expression: Expression) -> Expression:
        """``expression`` without marks. Amortised cost: a few steps per expression of the pool."""
        plain = self._plain
        for each in range(len(plain), expression + 1):  # operands come before what they are part of
            plain.append(self._unmarked(each))
        return plain[expression]

    def _unmarked(self, expression: Expression) -> Expression:
        pool, plain = self._pool, self._plain
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.MARKED:
            inside: Expression = operand[0]
            return plain[inside]
        if kind == Kind.CONCATENATION:
            head, tail = operand
            same = plain[head] == head and plain[tail] == tail
            return expression if same else pool.concatenate(plain[head], plain[tail])
        if kind == Kind.UNION:
            members = [plain[member] for member in operand]
            return expression if members == list(operand) else pool.union(members)
        if kind == Kind.REPETITION:
            inner, low, high = operand
            return expression if plain[inner] == inner else pool.repeat(plain[inner], low, high)
        return expression
