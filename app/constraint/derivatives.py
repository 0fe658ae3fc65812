"""Derivatives of byte expressions, and the length of the shortest string of each.

The derivative of a language by a byte b holds what may follow b (Brzozowski 1964). ``row`` gives
all derivatives of an expression at once, as a partition of the bytes into classes (Owens, Reppy
and Turon 2009, section 4.2). Lengths are exact: those of plain expressions come from their parts,
those of rules from a fixpoint, those of intersections and complements from an A* search over their
derivatives, so an intersection that nothing satisfies is found out and pruned.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from app.constraint.expressions import (
    ALL_BYTES,
    INFINITE,
    ByteSet,
    Expression,
    ExpressionPool,
    Kind,
)
from app.core.errors import ConstraintTooComplex

Row = list[tuple[ByteSet, Expression]]
"""Disjoint, non-empty byte classes with different derivatives; bytes in no class lead nowhere."""

_PREFERRED = b"a0A _"
"""Bytes a shortest completion is spelled with where several are as short."""


class Derivatives:
    """Derivatives and lengths over one pool, memoised. Picklable together with the pool.

    ``measure`` must be called once after all rules are defined. ``max_search`` bounds the states
    one search for a shortest string may visit; passing it raises ``ConstraintTooComplex``.
    """

    def __init__(self, pool: ExpressionPool, max_search: int = 20_000) -> None:
        self.pool = pool
        self.max_search = max_search
        self._rows: dict[Expression, Row] = {}
        self._open: set[Expression] = set()
        self._lengths: list[int | None] = []
        self._rule_lengths: list[int] = []
        self._found: dict[Expression, bytes] = {}
        """Shortest strings of intersections and complements, by search."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_rows": {}}

    def row(self, expression: Expression) -> Row:
        """Every next byte and the derivative it leads to. Memoised."""
        found = self._rows.get(expression)
        if found is None:
            found = self._row(expression)
            self._rows[expression] = found
        return found

    def live_row(self, expression: Expression) -> Row:
        """``row`` without the derivatives from which no string can be finished."""
        return [(b, e) for b, e in self.row(expression) if self.length(e) < INFINITE]

    def derivative(self, expression: Expression, byte: int) -> Expression:
        """What may follow ``byte``; the pool's ``empty`` if nothing can be finished from there.

        Costs fewer new expressions than ``row`` does inside repetitions and concatenations.
        """
        target = self._derivative(expression, byte)
        return target if self.length(target) < INFINITE else self.pool.empty

    def _derivative(self, expression: Expression, byte: int) -> Expression:
        pool, targets = self.pool, []
        while expression not in self._rows and pool.kinds[expression] is Kind.CONCATENATION:
            head, tail = pool.operands[expression]
            targets.append(pool.concatenate(self._derivative(head, byte), tail))
            if not pool.nullable[head]:
                return pool.union(targets)
            expression = tail
        if expression not in self._rows and pool.kinds[expression] is Kind.REPETITION:
            repetition = pool.operands[expression]
            after = self._derivative(repetition[0], byte)
            targets.append(pool.concatenate(after, self._rest(repetition)))
        else:
            row = self.row(expression)
            targets.extend(target for members, target in row if members >> byte & 1)
        return pool.union(targets)

    def _rest(self, repetition: tuple[Expression, int, int | None]) -> Expression:
        """What a repetition still is after one time."""
        inner, low, high = repetition
        return self.pool.repeat(inner, max(low - 1, 0), None if high is None else high - 1)

    def length(self, expression: Expression) -> int:
        """Bytes in a shortest string of the language; ``INFINITE`` if there is none."""
        lengths = self._lengths
        if expression >= len(lengths):
            lengths.extend([None] * (len(self.pool) - len(lengths)))
        known = lengths[expression]
        if known is None:
            known = self._length(expression)
            self._set_length(expression, known)
        return known

    def measure(self) -> None:
        """Compute the lengths of all rules, by iteration to the least fixpoint.

        Cost: nodes times the depth to which shortest strings nest rules.
        """
        pool = self.pool
        self._rule_lengths = [INFINITE] * len(pool.bodies)
        changed = True
        while changed:
            changed = False
            self._lengths = [
                known if pool.regular[e] else None for e, known in enumerate(self._lengths)
            ]
            for expression in range(len(pool)):  # operands come before what they are part of
                self.length(expression)
            for index, body in enumerate(pool.bodies):
                assert body is not None, "a declared rule has no body"
                length = self.length(body)
                if length < self._rule_lengths[index]:
                    self._rule_lengths[index] = length
                    changed = True

    def shortest(self, expression: Expression) -> bytes:
        """A shortest string of the language, which must not be empty. Deterministic."""
        pool, parts = self.pool, []
        while not pool.nullable[expression]:
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind is Kind.CONCATENATION:
                parts.append(self.shortest(operand[0]))
                expression = operand[1]
            elif kind is Kind.UNION:
                expression = min(operand, key=self.length)
            elif kind is Kind.RULE:
                expression = pool.bodies[operand] or pool.empty
            else:
                parts.append(self._shortest_of_leaf(expression))
                break
        return b"".join(parts)

    def _shortest_of_leaf(self, expression: Expression) -> bytes:
        kind, operand = self.pool.kinds[expression], self.pool.operands[expression]
        if kind is Kind.LITERAL:
            text: bytes = operand
            return text
        if kind is Kind.BYTES:
            return bytes([_preferred_byte(operand)])
        if kind is Kind.REPETITION:
            return self.shortest(operand[0]) * int(operand[1])
        self.length(expression)
        return self._found[expression]

    def _row(self, expression: Expression) -> Row:
        pool = self.pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind is Kind.BYTES:
            return [(operand, pool.epsilon)]
        if kind is Kind.LITERAL:
            return [(1 << operand[0], pool.literal(operand[1:]))]
        if kind is Kind.CONCATENATION:
            return self._row_of_concatenation(expression)
        if kind is Kind.UNION:
            return self._merge([self.row(member) for member in operand])
        if kind is Kind.INTERSECTION:
            return self._row_of_intersection(operand)
        if kind is Kind.COMPLEMENT:
            return self._row_of_complement(operand)
        if kind is Kind.REPETITION:
            rest = self._rest(operand)
            return [(b, pool.concatenate(e, rest)) for b, e in self.row(operand[0])]
        if kind is Kind.RULE:
            return self._row_of_rule(expression, operand)
        return []

    def _row_of_concatenation(self, expression: Expression) -> Row:
        pool, rows = self.pool, []
        while pool.kinds[expression] is Kind.CONCATENATION:
            head, tail = pool.operands[expression]
            rows.append([(b, pool.concatenate(e, tail)) for b, e in self.row(head)])
            if not pool.nullable[head]:
                break
            expression = tail
        else:
            rows.append(self.row(expression))
        return rows[0] if len(rows) == 1 else self._merge(rows)

    def _row_of_intersection(self, members: Sequence[Expression]) -> Row:
        classes: list[tuple[ByteSet, list[Expression]]] = [(ALL_BYTES, [])]
        for member in members:
            classes = [
                (common, [*targets, target])
                for bits, targets in classes
                for member_bits, target in self.row(member)
                if (common := bits & member_bits)
            ]
        return self._by_target((bits, self.pool.intersect(targets)) for bits, targets in classes)

    def _row_of_complement(self, inner: Expression) -> Row:
        row, rest = [], ALL_BYTES
        for bits, target in self.row(inner):
            row.append((bits, self.pool.complement(target)))
            rest &= ~bits
        row.append((rest, self.pool.everything))
        return self._by_target(row)

    def _row_of_rule(self, rule: Expression, index: int) -> Row:
        if rule in self._open:
            raise ConstraintTooComplex("a rule that refers to itself before it consumes a byte")
        body = self.pool.bodies[index]
        assert body is not None, "a declared rule has no body"
        self._open.add(rule)
        try:
            return self.row(body)
        finally:
            self._open.discard(rule)

    def _merge(self, rows: Iterable[Row]) -> Row:
        """The row of a union, from the rows of its members.

        Single bytes are grouped first, so a union of many literals costs their number and not
        its square.
        """
        single: dict[ByteSet, list[Expression]] = {}
        wide: list[tuple[ByteSet, list[Expression]]] = []
        for row in rows:
            for bits, target in row:
                if bits & (bits - 1) == 0:
                    single.setdefault(bits, []).append(target)
                else:
                    wide = _refine(wide, bits, [target])
        for bits, targets in single.items():
            wide = _refine(wide, bits, targets)
        return self._by_target((bits, self.pool.union(targets)) for bits, targets in wide)

    def _by_target(self, row: Iterable[tuple[ByteSet, Expression]]) -> Row:
        merged: dict[Expression, ByteSet] = {}
        for bits, target in row:
            if bits and target != self.pool.empty:
                merged[target] = merged.get(target, 0) | bits
        return [(bits, target) for target, bits in merged.items()]

    def _length(self, expression: Expression) -> int:
        pool = self.pool
        if pool.nullable[expression]:
            return 0
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind is Kind.LITERAL:
            text: bytes = operand
            return len(text)
        if kind is Kind.BYTES:
            return 1
        if kind is Kind.CONCATENATION:
            return min(INFINITE, self.length(operand[0]) + self.length(operand[1]))
        if kind is Kind.UNION:
            return min([self.length(member) for member in operand])
        if kind is Kind.REPETITION:
            low: int = operand[1]
            return min(INFINITE, self.length(operand[0]) * low)
        if kind is Kind.RULE:
            return self._rule_lengths[int(operand)]
        if kind is Kind.EMPTY:
            return INFINITE
        return self._search(expression)

    def _search(self, start: Expression) -> int:
        """A* over derivatives to the nearest nullable one; records what it learns on the way."""
        pool = self.pool
        order = count()
        frontier = [(self._bound(start), 0, next(order), start)]
        cost: dict[Expression, int] = {start: 0}
        came: dict[Expression, tuple[Expression, ByteSet]] = {}
        while frontier:
            _, depth, _, here = heapq.heappop(frontier)
            if depth > cost[here]:
                continue
            if pool.nullable[here]:
                self._record_path(start, here, came)
                return depth
            if len(cost) > self.max_search:
                raise ConstraintTooComplex(f"more than {self.max_search} states in a search")
            for bits, target in self.row(here):
                if depth + 1 < cost.get(target, INFINITE):
                    bound = self._bound(target)
                    if bound < INFINITE:
                        cost[target] = depth + 1
                        came[target] = (here, bits)
                        entry = (depth + 1 + bound, depth + 1, next(order), target)
                        heapq.heappush(frontier, entry)
        for expression in cost:
            self._set_length(expression, INFINITE)
        return INFINITE

    def _record_path(
        self, start: Expression, end: Expression, came: dict[Expression, tuple[Expression, ByteSet]]
    ) -> None:
        text = b""
        while end != start:
            end, bits = came[end]
            text = bytes([_preferred_byte(bits)]) + text
            self._set_length(end, len(text))
            self._found[end] = text

    def _set_length(self, expression: Expression, length: int) -> None:
        if expression >= len(self._lengths):
            self._lengths.extend([None] * (len(self.pool) - len(self._lengths)))
        self._lengths[expression] = length

    def _bound(self, expression: Expression) -> int:
        """A lower bound of the length, without a search: the A* heuristic."""
        if expression < len(self._lengths):
            known = self._lengths[expression]
            if known is not None:
                return known
        pool = self.pool
        if pool.nullable[expression]:
            return 0
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind is Kind.INTERSECTION:
            return max([self._bound(member) for member in operand])
        if kind is Kind.COMPLEMENT:
            return 1
        if kind is Kind.CONCATENATION:
            return min(INFINITE, self._bound(operand[0]) + self._bound(operand[1]))
        if kind is Kind.UNION:
            return min([self._bound(member) for member in operand])
        if kind is Kind.REPETITION:
            return min(INFINITE, self._bound(operand[0]) * int(operand[1]))
        return self._length(expression)


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
        if class_bits & ~common:
            refined.append((class_bits & ~common, class_targets))
    if bits:
        refined.append((bits, targets))
    return refined


def _preferred_byte(bits: ByteSet) -> int:
    for byte in _PREFERRED:
        if bits >> byte & 1:
            return byte
    return (bits & -bits).bit_length() - 1
