"""The automaton of a program whose holes are filled: states inside pieces have no rows."""

from __future__ import annotations

from dataclasses import dataclass

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import DEAD
from app.constraint.language.expressions import Expression, Kind
from app.constraint.program import Program
from app.constraint.quotes.binding import BoundDerivatives

_PIECES = (Kind.HOLE, Kind.PIECE)


class PieceMet(Exception):
    """A walk that expands states reached one inside a piece."""


@dataclass(frozen=True, slots=True)
class Inside:
    """A state inside a piece: the piece and its tail, which begins with a quote."""

    piece: Expression
    tail: State


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The alternatives of a state: inside one or more pieces, or outside of any (``rest``)."""

    pieces: tuple[Inside, ...]
    rest: State


class PieceAutomaton(Automaton):
    """Follows pieces by the kernels of ``positions``, many bytes at once.

    Expanding a state inside a piece raises ``PieceMet``, so results for states do not depend on
    earlier walks.
    """

    def __init__(self, program: Program) -> None:
        assert isinstance(program.derivatives, BoundDerivatives)
        self.bound: BoundDerivatives = program.derivatives
        self._alternatives: dict[State, Alternatives | None] = {}
        super().__init__(program)

    def inside(self, state: State) -> Alternatives | None:
        """The pieces that ``state`` is inside of; None if there are none."""
        if state not in self._alternatives:
            self._alternatives[state] = self._look_inside(state)
        return self._alternatives[state]

    def begins_with_piece(self, expression: Expression) -> Inside | None:
        """The piece with which ``expression`` begins, if a quote ends it."""
        if self.pool.kinds[expression] != Kind.CONCATENATION:
            return None
        head, tail = self.pool.operands[expression]
        if self.pool.kinds[head] not in _PIECES or self.leading_literal(tail)[:1] != b'"':
            return None
        return Inside(head, self.state(tail))

    def quoted(self, state: State, most: int) -> bytes:
        alternatives = self.inside(state)
        if alternatives is None:
            return b""
        pieces, leaf = self.bound.leaf(alternatives.pieces[0].piece)
        return pieces.quoted(leaf, most)

    def expand(self, state: State) -> None:
        if self.inside(state) is not None:
            raise PieceMet
        super().expand(state)

    def _look_inside(self, state: State) -> Alternatives | None:
        pool = self.pool
        expression = self.expression(state)
        is_union = pool.kinds[expression] == Kind.UNION
        pieces: list[Inside] = []
        rest: list[Expression] = []
        for member in pool.operands[expression] if is_union else (expression,):
            found = self.begins_with_piece(member)
            if found is None:
                rest.append(member)
            else:
                pieces.append(found)
        if not pieces:
            return None
        return Alternatives(tuple(pieces), self.state(pool.union(rest)) if rest else DEAD)

    def _stepped(self, state: State, text: bytes) -> State:
        here, position = self.expression(state), 0
        while position < len(text) and here != self.pool.empty:
            shared = self._literal_prefix(here, text, position)
            inside = None if shared else self.begins_with_piece(here)
            if inside is not None:
                after, stop = self.bound.follow(inside.piece, text, position)
                tail = self.expression(inside.tail)
                if stop > position:
                    here, position = self.pool.concatenate(after, tail), stop
                else:
                    here = tail if self.pool.nullable[inside.piece] else self.pool.empty
            elif shared:
                here = self.skip_literal(here, shared)
                position += shared
            else:
                here = self.derivatives.derivative(here, text[position])
                position += 1
        return self.state(here)

    def _branches(self, expression: Expression) -> bool:
        if self.bound.has_live_row(expression):
            return False  # the row shows it
        inside = self.begins_with_piece(expression)
        return inside is not None and self.bound.branches(inside.piece)
