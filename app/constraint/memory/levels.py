"""What marks say of states: at which levels an item is being written, and what is left of it."""

from __future__ import annotations

from itertools import zip_longest

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import DEAD
from app.constraint.language.counting import ENDLESS, Counting
from app.constraint.language.expressions import INFINITE, Expression, Kind, Mark

_Scan = tuple[bool, tuple[bool, ...]]
"""Whether an item of the level around is being written, and the same of the levels within."""

_BLANKS = b" \n\r\t"

_ROUND = 16
"""Counts up to a power of this are looked up as that power."""


class Levels:
    """Looks at the states of one automaton. Memoised; one thread at a time.

    Of the ways on that a state unites some may have no marks, or fewer. Marked containers are
    counted from the outermost, and every container around a marked one is marked, so levels of
    different ways are those of the same text.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._pool = automaton.pool
        self._num_shared = self._pool.num_shared
        self._counting = Counting(automaton.derivatives)
        self._begun: dict[State, tuple[bool, ...]] = {}
        self._ahead: dict[State, bool] = {}
        self._before: dict[Expression, int] = {}
        self._without: dict[tuple[State, int], State] = {}
        self._endless: dict[tuple[State, int], bool] = {}
        self._extra: dict[tuple[Expression, int], int] = {}
        self._extra_at: dict[tuple[State, int, int], int] = {}
        marked = self._pool.index[Kind.MARKED]
        self._items = [inner for inner, mark in marked if mark == Mark.ITEM]

    @property
    def any(self) -> bool:
        """Whether there are items that must differ at all."""
        return bool(self._items)

    @property
    def nbytes(self) -> int:
        known = len(self._begun) + len(self._ahead) + len(self._without) + len(self._endless)
        known += len(self._extra) + len(self._extra_at)
        return 160 * known + 100 * len(self._before)

    def begun(self, state: State) -> tuple[bool, ...]:
        """By level, from the outermost: whether an item of it is being written, or is whole and
        the byte behind it has not come."""
        known = self._begun.get(state)
        if known is None:
            known = self._begun[state] = self._scan(self._automaton.expression(state))[1]
        return known

    def is_ahead(self, state: State) -> bool:
        """Whether an item may begin here, with nothing but blanks before it."""
        known = self._ahead.get(state)
        if known is None:
            known = self._ahead[state] = self._leads(self._automaton.expression(state))
        return known

    def _leads(self, expression: Expression) -> bool:
        pool = self._pool
        while True:
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind == Kind.UNION:
                return any(map(self._leads, operand))
            if kind == Kind.MARKED or kind == Kind.DRAWN:
                if kind == Kind.MARKED and operand[1] == Mark.ITEM:
                    return True
                expression = operand[0]
            elif kind == Kind.CONCATENATION:
                if self._leads(operand[0]):
                    return True
                if not self._may_be_blank(operand[0]):
                    return False
                expression = operand[1]
            else:
                return False

    def bytes_before(self, state: State) -> int:
        """Bytes that come before the next item that begins, at least."""
        return self._bytes_before(self._automaton.expression(state))

    def _bytes_before(self, expression: Expression) -> int:
        pool = self._pool
        if pool.regular[expression] or expression < self._num_shared:
            return INFINITE
        known = self._before.get(expression)
        if known is None:
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind == Kind.CONCATENATION:
                head, tail = operand
                known, behind = self._bytes_before(head), self._bytes_before(tail)
                if behind < known:
                    known = min(known, self._automaton.derivatives.length(head) + behind)
            elif kind == Kind.UNION:
                known = min(map(self._bytes_before, operand))
            elif kind == Kind.MARKED and operand[1] == Mark.ITEM:
                known = 0
            elif kind == Kind.RULE:
                known = 0 if self._has_items(expression) else INFINITE
            elif kind in (Kind.MARKED, Kind.DRAWN, Kind.REPETITION):
                known = self._bytes_before(operand[0])
            elif kind == Kind.DISTINCT:
                known = min(map(self._bytes_before, pool.parts(expression)))
            else:
                known = INFINITE
            self._before[expression] = known
        return known

    def _has_items(self, expression: Expression) -> bool:
        """Whether some item may begin within ``expression``."""
        pool, seen = self._pool, {expression}
        waiting = [expression]
        while waiting:
            here = waiting.pop()
            if pool.kinds[here] == Kind.MARKED and pool.operands[here][1] == Mark.ITEM:
                return True
            for part in pool.parts(here):
                if part not in seen and part >= self._num_shared and not pool.regular[part]:
                    seen.add(part)
                    waiting.append(part)
        return False

    def _may_be_blank(self, expression: Expression) -> bool:
        """Whether ``expression`` has a string of nothing but blanks, as far as that is plain."""
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.LITERAL:
            return not operand.strip(_BLANKS)
        if kind == Kind.BYTES:
            return any(operand >> byte & 1 for byte in _BLANKS)
        if kind in (Kind.CONCATENATION, Kind.UNION):
            combine = all if kind == Kind.CONCATENATION else any
            return pool.nullable[expression] or combine(map(self._may_be_blank, operand))
        return pool.nullable[expression] or (
            kind == Kind.REPETITION and self._may_be_blank(operand[0])
        )

    def _scan(self, expression: Expression) -> _Scan:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.MARKED and operand[1] != Mark.ITEM:
            here, inside = self._scan(operand[0])
            return (False, (here, *inside)) if operand[1] == Mark.LEVEL else (True, inside)
        if kind == Kind.DRAWN:
            return self._scan(operand[0])
        if kind == Kind.UNION:
            found = [self._scan(member) for member in operand]
        elif kind == Kind.CONCATENATION:
            found = [self._scan(operand[0])]
            if pool.nullable[operand[0]]:
                found.append(self._scan(operand[1]))
        else:
            return False, ()
        columns = zip_longest(*(inside for _, inside in found), fillvalue=False)
        return any(here for here, _ in found), tuple(any(column) for column in columns)

    def without_end(self, state: State, level: int) -> State:
        """``state`` where the item of ``level`` may not end, but go on; ``DEAD`` if it cannot."""
        known = self._without.get((state, level))
        if known is None:
            cut = self._cut(self._automaton.expression(state), level + 1)
            alive = self._automaton.derivatives.is_alive(cut)
            known = self._automaton.state(cut) if alive else DEAD
            self._without[state, level] = known
        return known

    def _cut(self, expression: Expression, levels: int) -> Expression:
        """``expression`` without the ends of an item, ``levels`` containers from here."""
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.UNION:
            return pool.union([self._cut(member, levels) for member in operand])
        if kind == Kind.DRAWN:
            cut = self._cut(operand[0], levels)
            texts = [text for text in operand[1] if self._automaton.leads_on(cut, text)]
            return pool.drawn(cut, texts)
        if kind == Kind.CONCATENATION:
            cut = pool.concatenate(self._cut(operand[0], levels), operand[1])
            if pool.nullable[operand[0]] and not self._marks(operand[0]):
                return pool.union((cut, self._cut(operand[1], levels)))
            return cut
        if kind != Kind.MARKED or operand[1] == Mark.ITEM:
            return expression
        inner, mark = operand
        if mark == Mark.LEVEL:
            return pool.marked(self._cut(inner, levels - 1), mark) if levels else expression
        return pool.marked(self._cut(inner, levels) if levels else self._longer(inner), mark)

    def _marks(self, expression: Expression) -> bool:
        here, inside = self._scan(expression)
        return here or bool(inside)

    def _longer(self, expression: Expression) -> Expression:
        """``expression`` without the empty string."""
        pool = self._pool
        if not pool.nullable[expression]:
            return expression
        if expression == pool.epsilon or not pool.regular[expression]:
            return pool.empty  # a value of which a rule is part is whole at its closing bracket
        return pool.intersect((expression, pool.complement(pool.epsilon)))

    def is_endless(self, state: State, level: int) -> bool:
        """Whether the item of ``level`` can be finished in more ways than an answer can use up.

        Of one that was drawn it is not known."""
        known = self._endless.get((state, level))
        if known is None:
            rest = self._rest(state, level)
            known = self._counting.count(rest) >= ENDLESS
            self._endless[state, level] = known
        return known

    def extra(self, state: State, level: int, number: int) -> int:
        """Bytes by which the item of ``level`` gets longer, at most, where ``number`` texts may
        not be repeated. It is endless."""
        size = _rounded(number)
        known = self._extra_at.get((state, level, size))
        if known is None:
            known = self._longer_by(self._rest(state, level), size)
            self._extra_at[state, level, size] = known
        return known

    def extra_of_items(self, number: int) -> int:
        """The same for any item that is not begun, with values enough."""
        size = _rounded(number)
        return max([self._longer_by(item, size) for item in self._items], default=0)

    def _longer_by(self, values: Expression, size: int) -> int:
        known = self._extra.get((values, size))
        if known is None:
            wanted = self._counting.count(values, size + 1)
            derivatives = self._automaton.derivatives
            known = self._counting.length_of(values, wanted) - derivatives.length(values)
            self._extra[values, size] = known
        return known

    def _rest(self, state: State, level: int) -> Expression:
        """What is left of the item of ``level``."""
        return self._found(self._automaton.expression(state), level + 1)

    def _found(self, expression: Expression, levels: int) -> Expression:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.UNION:
            return pool.union([self._found(member, levels) for member in operand])
        if kind == Kind.CONCATENATION:
            found = self._found(operand[0], levels)
            if pool.nullable[operand[0]]:
                return pool.union((found, self._found(operand[1], levels)))
            return found
        if kind != Kind.MARKED or operand[1] == Mark.ITEM:
            return pool.empty
        inner, mark = operand
        if mark == Mark.LEVEL:
            return self._found(inner, levels - 1) if levels else pool.empty
        return self._found(inner, levels) if levels else inner


def _rounded(number: int) -> int:
    size = 1
    while size <= number:
        size *= _ROUND
    return size
