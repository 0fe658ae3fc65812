"""A program whose holes are filled with documents, and the derivatives of their pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE, Expression, ExpressionPool, Kind
from app.constraint.language.rows import UNBOUNDED, Row
from app.constraint.program import Program
from app.constraint.quotes.document import Document
from app.constraint.quotes.leaf import MOST_PAIRS, Pieces
from app.constraint.quotes.positions import Leaf
from app.core.errors import UnsatisfiableSchema
from app.core.verbatim import Hole, Source

_BIND_WORK = 1_000_000
"""Steps of work that lengths and emptiness may cost once documents are there."""

Piece = tuple[Expression, Leaf]
"""Operand of a ``Kind.PIECE``: the hole that it fills, and where in it the piece stands."""


class BoundDerivatives(Derivatives):
    """Derivatives where each hole is the pieces of a document."""

    def __init__(self, pool: ExpressionPool, pieces: Mapping[Expression, Pieces]) -> None:
        """``pieces``: what fills each hole, by the hole's expression in the pool."""
        super().__init__(pool)
        self.pieces = pieces

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(pieces.nbytes for pieces in self.pieces.values())

    def filled(self, expression: Expression) -> tuple[Pieces, Leaf] | None:
        """The piece that ``expression`` is, None if it is none."""
        kind, operand = self.pool.kinds[expression], self.pool.operands[expression]
        if kind == Kind.PIECE:
            return self.pieces[operand[0]], operand[1]
        if kind == Kind.HOLE:
            pieces = self.pieces[expression]
            return pieces, pieces.start
        return None

    def piece(self, hole: Expression, leaf: Leaf) -> Expression:
        """The expression of a leaf, which has an end to go to."""
        nullable = self.pieces[hole].is_end(leaf)
        return self.pool.node(Kind.PIECE, (hole, leaf), nullable=nullable, regular=True)

    def hole_of(self, expression: Expression) -> Expression:
        """The hole that a piece fills."""
        operand = self.pool.operands[expression]
        return operand[0] if self.pool.kinds[expression] == Kind.PIECE else expression

    def follow(self, expression: Expression, text: bytes, at: int) -> tuple[Expression, int]:
        """A piece as far along ``text`` as it goes from ``at``, and where that is."""
        filled = self.filled(expression)
        assert filled is not None
        pieces, leaf = filled
        after, stop = pieces.follow(leaf, np.frombuffer(text, np.uint8), at)
        self.spend(1 + (stop - at) // 8)
        return (self.piece(self.hole_of(expression), after) if stop > at else expression), stop

    def branches(self, expression: Expression) -> bool:
        """Whether surely several bytes may follow a piece."""
        filled = self.filled(expression)
        assert filled is not None
        pieces, leaf = filled
        return pieces.branches(leaf)

    def is_alive(self, expression: Expression) -> bool:
        kind = self.pool.kinds[expression]
        if kind == Kind.PIECE:
            return True
        if kind == Kind.HOLE:
            return self.pieces[expression].any
        return super().is_alive(expression)

    def _row(self, expression: Expression) -> Row:
        filled = self.filled(expression)
        if filled is None:
            return super()._row(expression)
        pieces, leaf = filled
        if not pieces.any:
            return []
        hole = self.hole_of(expression)
        self.spend(8)
        return [(1 << byte, self.piece(hole, after)) for byte, after in pieces.row(leaf)]

    def _length(self, expression: Expression) -> int:
        filled = self.filled(expression)
        if filled is None:
            return super()._length(expression)
        pieces, leaf = filled
        return pieces.length(leaf) if pieces.any else INFINITE

    def _shortest_piece(self, hole: Expression) -> bytes:
        filled = self.filled(hole)
        assert filled is not None
        pieces, leaf = filled
        return pieces.shortest(leaf)


def holes_of(program: Program) -> list[Hole]:
    """The holes of a program, in the order in which they were made."""
    return [operand[0] for operand in program.derivatives.pool.index[Kind.HOLE]]


def bind(program: Program, documents: Mapping[Source, Document]) -> Program:
    """``program`` with its holes filled; it stays as it is, and may be bound on several threads.

    Raises ``UnsatisfiableSchema`` where no answer is left: the documents lack any piece that fits;
    and ``ConstraintTooComplex`` for patterns with too many states over documents.
    """
    fill = _Filling(documents)
    pool = program.derivatives.pool.copy(program.derivatives.pool.max_nodes)
    pieces = {
        expression: fill.pieces(pool.operands[expression][0])
        for expression, kind in enumerate(pool.kinds)
        if kind == Kind.HOLE
    }
    derivatives = BoundDerivatives(pool, pieces)
    derivatives.allow(_BIND_WORK)
    derivatives.measure()
    empty = derivatives.length(program.root) >= INFINITE
    derivatives.allow(UNBOUNDED)
    if empty:
        raise UnsatisfiableSchema(_missing([each.hole for each in pieces.values() if not each.any]))
    return Program(program.root, derivatives, program.characters, notation=program.notation)


class _Filling:
    """What fills the holes of one program: where they ask for the same, the same."""

    def __init__(self, documents: Mapping[Source, Document]) -> None:
        self._documents = documents
        self._known: dict[Hole, Pieces] = {}
        self._room = MOST_PAIRS

    def pieces(self, hole: Hole) -> Pieces:
        asked = replace(hole, pointer="")
        known = self._known.get(asked)
        if known is None:
            known = Pieces(self._documents[hole.source], hole, self._room)
            self._room -= known.pairs
            self._known[asked] = known
        return known


def _missing(holes: Sequence[Hole]) -> str:
    """What to tell where the documents lack a piece."""
    if not holes:
        return "no value of this schema is made of pieces of the prompt"
    hole = holes[0]
    where = "the user's text" if hole.source.part is None else hole.source.part
    bounds = [f"of at least {hole.low} characters"] if hole.low else []
    bounds += [f"of at most {hole.high} characters"] if hole.high is not None else []
    bounds += ["that matches the pattern"] if hole.pattern else []
    return (
        f"no piece of {where} {' and '.join(bounds) or 'fits'} is there for the x-verbatim string "
        f"at {hole.pointer or 'the root'}; admit null or a shorter piece"
    )
