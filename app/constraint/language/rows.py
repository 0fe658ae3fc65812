"""Rows: all derivatives of a byte expression at once, memoised, with a bound on work.

The derivative of a language by a byte b has the rests of its strings after b (Brzozowski 1964). A
row gives all derivatives as a partition of the bytes into classes (Owens, Reppy and Turon 2009,
section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

from app.constraint.language.cases import Cases
from app.constraint.language.expressions import (
    ALL_BYTES,
    ByteSet,
    Expression,
    ExpressionPool,
    Kind,
    mark_after,
)
from app.constraint.language.nodes import bytes_of
from app.core.errors import ConstraintTooComplex

Row = list[tuple[ByteSet, Expression]]
"""Disjoint, non-empty byte classes with different derivatives; bytes in no class lead nowhere."""

UNBOUNDED = 1 << 62

_MANY_CLASSES = 24
"""Classes in the rows of an intersection above which it is computed byte by byte."""

_MANY_MEMBERS = 16
"""Members of a union from which on the derivative of each of them is cached."""
_MOST_AFTER = 1 << 16

_DENSE_WORK = 60
"""Steps of work to examine all bytes."""

_WORK_OF_PART = 2
"""Steps of work for each part of ``Cases`` and class of bytes."""

_BUILDING_WORK = 4
"""Steps of work for each new expression of a union or intersection."""


class TooMuchWork(ConstraintTooComplex):
    """A call reached its limit of work; its results so far are cached."""


T = TypeVar("T")
InTurns = Generator[TooMuchWork, None, T]
"""Resumable work: it yields ``TooMuchWork`` at the limit of a call and continues in a later one."""


def at_once(work: InTurns[T]) -> T:
    """The result of ``work`` in one call. Raises ``TooMuchWork``."""
    try:
        raise next(work)
    except StopIteration as done:
        result: T = done.value
        return result


def in_turns(call: Callable[[], T]) -> InTurns[T]:
    """The result of ``call``, which is repeated until its work limit suffices."""
    while True:
        try:
            return call()
        except TooMuchWork as error:
            yield error


class Rows:
    """Rows over one pool, memoised. Picklable together with the pool, without the rows.

    Work is counted in classes and members examined, about a microsecond each, so the same input
    costs the same work on every machine. ``allow`` bounds it. Beyond the bound ``TooMuchWork`` is
    raised; results so far stay cached, and everything stays usable.
    """

    def __init__(self, pool: ExpressionPool) -> None:
        self.pool = pool
        self._rows: dict[Expression, Row] = {}
        self._dense: dict[Expression, list[Expression]] = {}
        """Rows of members of intersections, byte by byte."""
        self._open: set[Expression] = set()
        self._joined: dict[tuple[Expression, Expression], Expression] = {}
        """Concatenations by their two parts, of which the first is a concatenation."""
        self._united: dict[tuple[Expression, ...], Expression] = {}
        """Unions by their members, in the given order."""
        self._met: dict[tuple[Expression, ...], Expression] = {}
        """Intersections in the same way."""
        self._after: dict[tuple[Expression, int], Expression] = {}
        """Derivatives of members of large unions."""
        self._allowed = UNBOUNDED
        self._left = UNBOUNDED

    def __getstate__(self) -> dict[str, Any]:
        computed = ("_rows", "_dense", "_joined", "_united", "_met", "_after")
        fresh = {name: dict[Any, Any]() for name in computed}
        return {**vars(self), **fresh, "_allowed": UNBOUNDED, "_left": UNBOUNDED}

    def allow(self, work: int) -> None:
        """Bound the work until the next call of ``allow``."""
        self._allowed = self._left = work

    @property
    def work(self) -> int:
        """Work done since the last ``allow``."""
        return self._allowed - self._left

    @property
    def nbytes(self) -> int:
        """Memory for rows, in bytes, estimated. Any thread may read it."""
        notes = len(self._joined) + len(self._united) + len(self._met) + len(self._after)
        return 220 * len(self._rows) + 2_200 * len(self._dense) + 110 * notes

    def row(self, expression: Expression) -> Row:
        """Every next byte and the derivative it leads to. Memoised; not to be changed."""
        found = self._rows.get(expression)
        if found is None:
            found = self._row(expression)
            self.spend(1 + 2 * len(found))
            self._rows[expression] = found
        return found

    def spend(self, work: int) -> None:
        """Count ``work``. Raises ``TooMuchWork`` above the limit."""
        self._left -= work
        if self._left < 0:
            raise TooMuchWork(f"more than {self._allowed} steps of work at once")

    def intersect(self, members: Sequence[Expression]) -> Expression:
        """``pool.intersect``, cached and with its work counted."""
        key = tuple(members)
        result = self._met.get(key)
        before = len(self.pool)
        if result is None:
            result = self._met[key] = self.pool.intersect(members)
        self.spend(1 + _BUILDING_WORK * (len(self.pool) - before))
        return result

    def unite(self, members: Sequence[Expression]) -> Expression:
        """``pool.union`` in the same way."""
        key = tuple(members)
        result = self._united.get(key)
        before = len(self.pool)
        if result is None:
            result = self._united[key] = self.pool.union(members)
        self.spend(1 + len(members) // 4 + _BUILDING_WORK * (len(self.pool) - before))
        return result

    def join(self, head: Expression, tail: Expression) -> Expression:
        """``pool.concatenate``, cached if ``head`` is a concatenation."""
        pool = self.pool
        if pool.kinds[head] != Kind.CONCATENATION:
            return pool.concatenate(head, tail)
        key = (head, tail)
        result = self._joined.get(key)
        if result is None:
            result = self._joined[key] = pool.concatenate(head, tail)
        return result

    def without_marks(self, expression: Expression) -> Expression:
        """The same language, without the marks around its first part."""
        kinds, operands = self.pool.kinds, self.pool.operands
        here, marked, behind = expression, False, list[Expression]()
        while True:
            kind = kinds[here]
            if kind == Kind.CONCATENATION:
                here, tail = operands[here]
                behind.append(tail)
            elif kind == Kind.MARKED:
                here, marked = operands[here][0], True
            else:
                break
        if not marked:
            return expression
        rest = behind.pop(0) if behind else self.pool.epsilon
        for tail in behind:
            rest = self.join(tail, rest)
        return self.join(here, rest)

    def derivative_of(self, expression: Expression, byte: int) -> Expression:
        """The derivative by ``byte``; the language may be empty.

        Creates fewer expressions than ``row``, and costs less if the row is not cached.
        """
        pool, targets = self.pool, []
        while expression not in self._rows and pool.kinds[expression] == Kind.CONCATENATION:
            head, tail = pool.operands[expression]
            if pool.kinds[head] == Kind.LITERAL:
                self._left -= 1
                text = pool.operands[head]
                after = pool.empty
                if text[0] == byte:
                    after = pool.after_text(text[1:], tail) if len(text) > 1 else tail
            else:
                after = self.join(self.derivative_of(head, byte), tail)
            targets.append(after)
            if not pool.nullable[head]:
                return self.unite(targets) if len(targets) > 1 else targets[0]
            expression = tail
            self.spend(1)
        after = self._derivative_of_part(expression, byte)
        return self.unite([*targets, after]) if targets else after

    def _derivative_of_part(self, expression: Expression, byte: int) -> Expression:
        """``derivative_of`` an expression that is no concatenation or whose row is cached."""
        pool = self.pool
        self._left -= 1  # the next ``spend`` checks the limit
        if expression not in self._rows:
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind == Kind.LITERAL:
                return pool.literal(operand[1:]) if operand[0] == byte else pool.empty
            if kind == Kind.REPETITION:
                after = self.derivative_of(operand[0], byte)
                return self.join(after, pool.repeat_after_one(*operand))
            if kind == Kind.MARKED:
                after = self.derivative_of(operand[0], byte)
                return pool.marked(after, mark_after(operand[1]))
            if kind == Kind.COMPLEMENT:
                return pool.complement(self.derivative_of(operand, byte))
            if kind == Kind.UNION or kind == Kind.INTERSECTION:
                if kind == Kind.INTERSECTION:
                    return self.intersect([self.derivative_of(e, byte) for e in operand])
                self._left -= len(operand) // 4
                members = self._members_after(operand, byte)
                return self.unite(members) if len(members) > 1 else (*members, pool.empty)[0]
        row = self.row(expression)
        return next((target for members, target in row if members >> byte & 1), pool.empty)

    def _members_after(self, members: Sequence[Expression], byte: int) -> list[Expression]:
        """The derivatives of ``members`` by ``byte``, without empty ones.

        Cached for many members: most of them recur after the next byte.
        """
        if len(members) < _MANY_MEMBERS:
            found = [self.derivative_of(member, byte) for member in members]
        else:
            if len(self._after) > _MOST_AFTER:
                self._after.clear()
            known, found = self._after, []
            for member in members:
                after = known.get((member, byte))
                if after is None:
                    after = known[member, byte] = self.derivative_of(member, byte)
                found.append(after)
        return [after for after in found if after != self.pool.empty]

    def _row(self, expression: Expression) -> Row:
        pool = self.pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.CONCATENATION:
            return self._row_of_concatenation(expression)
        if kind == Kind.UNION:
            return self._merge([self.row(member) for member in operand])
        if kind == Kind.LITERAL:
            return [(1 << operand[0], pool.literal(operand[1:]))]
        if kind == Kind.BYTES:
            return [(operand, pool.epsilon)]
        if kind == Kind.INTERSECTION:
            return self._row_of_intersection(operand)
        if kind == Kind.COMPLEMENT:
            row, rest = [], ALL_BYTES
            for bits, target in self.row(operand):
                row.append((bits, self.pool.complement(target)))
                rest &= ~bits
            row.append((rest, self.pool.everything))
            return self._by_target(row)
        if kind == Kind.REPETITION:
            rest = pool.repeat_after_one(*operand)
            return [(b, self.join(e, rest)) for b, e in self.row(operand[0])]
        if kind == Kind.RULE:
            if expression in self._open:
                raise ConstraintTooComplex("left recursion before the first byte of a rule")
            self._open.add(expression)
            try:
                return self.row(self.pool.body(expression))
            finally:
                self._open.discard(expression)
        if kind == Kind.CASES:
            return self._row_of_cases(operand)
        if kind == Kind.DISTINCT:
            return self.row(pool.expand(expression))
        if kind == Kind.REMAINDER:
            return self._by_target((byte, pool.remainder(rest)) for byte, rest in operand.row())
        if kind == Kind.MARKED:
            mark = mark_after(operand[1])
            return [(b, pool.marked(e, mark)) for b, e in self.row(operand[0])]
        if kind == Kind.DRAWN:
            return self._row_of_drawn(*operand)
        return self.row(operand[1]) if kind == Kind.HOLE else []

    def _row_of_concatenation(self, expression: Expression) -> Row:
        pool, rows = self.pool, []
        while pool.kinds[expression] == Kind.CONCATENATION:
            head, tail = pool.operands[expression]
            repeated, after = head, tail
            if pool.kinds[head] == Kind.REPETITION:
                # the rest of the repetition is joined to the tail once, not once per class
                repeated = pool.operands[head][0]
                after = pool.concatenate(pool.repeat_after_one(*pool.operands[head]), tail)
            rows.append([(b, self.join(e, after)) for b, e in self.row(repeated)])
            if not pool.nullable[head]:
                break
            expression = tail
            self.spend(1 + len(rows[-1]))
        else:
            rows.append(self.row(expression))
        return rows[0] if len(rows) == 1 else self._merge(rows)

    def _row_of_intersection(self, members: Sequence[Expression]) -> Row:
        pool = self.pool
        classes: list[tuple[ByteSet, list[Expression]]] = [(ALL_BYTES, [])]
        rows = [self.row(member) for member in members]
        if sum(map(len, rows)) > _MANY_CLASSES:
            return self._by_target(self._common_targets(members))
        for row in rows:
            self.spend(len(classes) * len(row) // 8)
            classes = [
                (common, targets if target == pool.everything else [*targets, target])
                for bits, targets in classes
                for member_bits, target in row
                if (common := bits & member_bits)
            ]
        return self._by_target(
            (bits, targets[0] if len(targets) == 1 else self.intersect(targets))
            for bits, targets in classes
        )

    def _row_of_cases(self, cases: Cases) -> Row:
        """All entries of the first part at once, as one state tells which demands are met."""
        first, *others = cases.parts
        classes: list[tuple[ByteSet, tuple[Expression, ...]]] = [(ALL_BYTES, ())]
        different = dict.fromkeys(first)
        for entry in different:
            row = self.row(entry)
            none = ALL_BYTES & ~sum(bits for bits, _ in row)
            classes = [
                (common, (*targets, target))
                for bits, targets in classes
                for entry_bits, target in (*row, (none, self.pool.empty))
                if (common := bits & entry_bits)
            ]
        self.spend(_WORK_OF_PART * len(cases.parts) * len(classes))
        row_of_first = []
        for bits, targets in classes:
            behind = dict(zip(different, targets, strict=True))
            table = tuple([behind[entry] for entry in first])
            row_of_first.append((bits, self.pool.cases(Cases((table, *others), cases.choices))))
        return self._merge([self._by_target(row_of_first), self.row(self.pool.behind_first(cases))])

    def _common_targets(self, members: Sequence[Expression]) -> list[tuple[ByteSet, Expression]]:
        """The row of an intersection, byte by byte: faster if there are many classes."""
        pool = self.pool
        self.spend(_DENSE_WORK + 8 * len(members))
        columns = list(zip(*map(self._dense_row, members), strict=True))
        numbers = {targets: number for number, targets in enumerate(dict.fromkeys(columns))}
        of_bytes = bytes(map(numbers.__getitem__, reversed(columns)))
        classes = {
            targets: int(of_bytes.translate(_ones(number)), 2)
            for targets, number in numbers.items()
            if pool.empty not in targets
        }
        self.spend(len(numbers) * len(members) // 4)
        return [(bits, self.intersect(targets)) for targets, bits in classes.items()]

    def _dense_row(self, expression: Expression) -> list[Expression]:
        """The derivative by each of the 256 bytes."""
        dense = self._dense.get(expression)
        if dense is None:
            dense = [self.pool.empty] * 256
            for bits, target in self.row(expression):
                for byte in bytes_of(bits):
                    dense[byte] = target
            self._dense[expression] = dense
        return dense

    def _row_of_drawn(self, expression: Expression, texts: Iterable[bytes]) -> Row:
        rests: dict[int, list[bytes]] = {}
        for text in texts:
            rests.setdefault(text[0], []).append(text[1:])
        return [
            (1 << byte, self.pool.drawn(self.derivative_of(expression, byte), rest))
            for byte, rest in rests.items()
        ]

    def _merge(self, rows: Iterable[Row]) -> Row:
        """The row of a union, from the rows of its members.

        Single bytes and equal classes are grouped first, so the cost of a union of many literals
        is linear in their number and not quadratic.
        """
        single: dict[ByteSet, list[Expression]] = {}
        wide: dict[ByteSet, list[Expression]] = {}
        for row in rows:
            for bits, target in row:
                group = wide if bits & (bits - 1) else single
                group.setdefault(bits, []).append(target)
        classes: list[tuple[ByteSet, list[Expression]]] = []
        for group in (wide, single):
            for bits, targets in group.items():
                self.spend(len(classes) // 8 + len(targets))
                classes = _refine(classes, bits, targets)
        return self._by_target(
            (bits, targets[0] if len(targets) == 1 else self.unite(targets))
            for bits, targets in classes
        )

    def _by_target(self, row: Iterable[tuple[ByteSet, Expression]]) -> Row:
        merged: dict[Expression, ByteSet] = {}
        pool, many = self.pool, (Kind.UNION, Kind.INTERSECTION)
        for bits, target in row:
            if bits and target != pool.empty:
                merged[target] = merged.get(target, 0) | bits
                if pool.kinds[target] in many:
                    self.spend(len(pool.operands[target]))
        return [(bits, target) for target, bits in merged.items()]


@cache
def _ones(number: int) -> bytes:
    """A table that translates the byte ``number`` to the digit 1, and all others to 0."""
    return bytes(b"1"[0] if byte == number else b"0"[0] for byte in range(256))


def _refine(
    classes: list[tuple[ByteSet, list[Expression]]], bits: ByteSet, targets: list[Expression]
) -> list[tuple[ByteSet, list[Expression]]]:
    """Split ``classes`` so that ``bits`` is a union of whole classes, and add ``targets`` there."""
    refined = []
    for class_bits, class_targets in classes:
        common = class_bits & bits
        if common:
            refined.append((common, [*class_targets, *targets]))
            bits &= ~common
            if class_bits == common:
                continue
            class_bits &= ~common
        refined.append((class_bits, class_targets))
    if bits:
        refined.append((bits, targets))
    return refined
