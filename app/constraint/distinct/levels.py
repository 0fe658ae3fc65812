"""Reads the marks of states: the levels with an item being written, and the rest of the item."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import DEAD
from app.constraint.language.cases import Cases
from app.constraint.language.expressions import Expression, Kind, Mark


@dataclass(slots=True)
class Front:
    """The marks at the front of a state's expression, and the items that may begin there."""

    begun: tuple[bool, ...] = ()
    """By level, from the outermost: whether an item is being written, or complete without the byte
    after it."""
    rests: dict[int, list[Expression]] = field(default_factory=dict)
    """By level, the possible rests of such an item."""
    items: dict[int, list[Expression]] = field(default_factory=dict)
    """By level, the items that may begin here."""
    text: int = 0
    """Mark (below 0) of the text that the state is in or before; 0: none."""


class Levels:
    """Reads the states of one automaton. Memoised; one thread at a time.

    Some alternatives of a state may have no marks, or fewer. Marked containers are counted from
    the outermost, and every container around a marked one is marked, so equal levels of different
    alternatives are the same container.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._pool = automaton.pool
        self._fronts: dict[State, Front] = {}
        self._without: dict[tuple[State, int], State] = {}
        self.items = [inner for inner, mark in self._pool.index[Kind.MARKED] if mark == Mark.ITEM]
        """All items that must differ from others."""

    @property
    def nbytes(self) -> int:
        return 500 * len(self._fronts) + 160 * len(self._without)

    def front(self, state: State) -> Front:
        known = self._fronts.get(state)
        if known is None:
            known = self._fronts[state] = self._look(self._automaton.expression(state))
        return known

    def rest(self, state: State, level: int) -> Expression:
        """What is left of the item of ``level`` that is being written."""
        return self._pool.union(self.front(state).rests[level])

    def _look(self, expression: Expression) -> Front:
        pool, front, levels = self._pool, Front(), 0
        waiting = [(expression, 0)]
        while waiting:
            here, level = waiting.pop()
            kind, operand = pool.kinds[here], pool.operands[here]
            if kind == Kind.UNION:
                waiting += [(member, level) for member in operand]
            elif kind == Kind.CONCATENATION:
                waiting += [(piece, level) for piece in self._first_pieces(here)]
            elif kind == Kind.DRAWN:
                waiting.append((operand[0], level))
            elif kind == Kind.CASES:
                for table in operand.parts:
                    waiting += [(entry, level) for entry in table]
                    if not any(pool.nullable[entry] for entry in table):
                        break
            elif kind == Kind.MARKED:
                inner, mark = operand
                if mark == Mark.ITEM:
                    front.items.setdefault(level - 1, []).append(inner)
                    continue
                if mark == Mark.BEGUN:
                    front.rests.setdefault(level - 1, []).append(inner)
                elif mark == Mark.LEVEL:
                    level += 1
                    levels = max(levels, level)
                elif mark < 0:
                    front.text = mark
                waiting.append((inner, level))
        front.begun = tuple([level in front.rests for level in range(levels)])
        return front

    def _first_pieces(self, expression: Expression) -> list[Expression]:
        """The pieces of a concatenation in which a string may begin."""
        pool, pieces = self._pool, list[Expression]()
        while pool.kinds[expression] == Kind.CONCATENATION:
            head, expression = pool.operands[expression]
            pieces.append(head)
            if not pool.nullable[head]:
                return pieces
        return [*pieces, expression]

    def without_end(self, state: State, level: int) -> State:
        """``state`` without the end of the item of ``level``; ``DEAD`` if no string is left."""
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
            texts = [text for text in operand[1] if self._automaton.has_prefix(cut, text)]
            return pool.drawn(cut, texts)
        if kind == Kind.CASES:
            first, *others = operand.parts
            table = tuple([self._cut(entry, levels) for entry in first])
            options = [pool.cases(Cases((table, *others), operand.choices))]
            if not any(map(self._marks, first)):
                options.append(self._cut(pool.behind_first(operand), levels))
            return pool.union(options)
        if kind == Kind.CONCATENATION:
            options = []
            while pool.kinds[expression] == Kind.CONCATENATION:
                head, expression = pool.operands[expression]
                options.append(pool.concatenate(self._cut(head, levels), expression))
                if not pool.nullable[head] or self._marks(head):
                    return pool.union(options)
            return pool.union([*options, self._cut(expression, levels)])
        if kind != Kind.MARKED or operand[1] == Mark.ITEM:
            return expression
        inner, mark = operand
        if mark == Mark.LEVEL:
            return pool.marked(self._cut(inner, levels - 1), mark) if levels else expression
        if mark != Mark.BEGUN or levels:
            return pool.marked(self._cut(inner, levels), mark)
        return pool.marked(self._longer(inner), mark)

    def _marks(self, expression: Expression) -> bool:
        front = self._look(expression)
        return bool(front.rests or front.begun)

    def _longer(self, expression: Expression) -> Expression:
        """``expression`` without the empty string."""
        pool = self._pool
        if not pool.nullable[expression]:
            return expression
        if expression == pool.epsilon or not pool.regular[expression]:
            return pool.empty  # a value with a rule is complete at its closing bracket
        return pool.intersect((expression, pool.complement(pool.epsilon)))
