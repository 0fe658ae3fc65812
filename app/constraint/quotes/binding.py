"""A program whose holes are filled with documents, and the derivatives of their pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from app.constraint.automaton.trie import Int32s
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE, Expression, ExpressionPool, Kind
from app.constraint.language.rows import UNBOUNDED, Row
from app.constraint.program import Program
from app.constraint.quotes.document import Document, WalkCache
from app.constraint.quotes.positions import (
    BREAK,
    NONE,
    TOGETHER,
    Leaf,
    Places,
    bytes_after,
    follow,
    least_owed,
    to_ends,
)
from app.core.errors import ConstraintTooComplex, UnsatisfiableSchema
from app.core.verbatim import Hole, Source

_BIND_WORK = 1_000_000
"""Steps of work for lengths and emptiness when documents are bound."""

Piece = tuple[Expression, Leaf]
"""Operand of a ``Kind.PIECE``: the hole that it fills, and the text so far."""


class BoundDerivatives(Derivatives):
    """Derivatives with each hole filled by the pieces of a document."""

    def __init__(self, pool: ExpressionPool, pieces: Mapping[Expression, Pieces]) -> None:
        """``pieces``: those that may fill each hole, by its expression in the pool."""
        super().__init__(pool)
        self.pieces = pieces

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(pieces.nbytes for pieces in self.pieces.values())

    def filled(self, expression: Expression) -> tuple[Pieces, Leaf] | None:
        """The piece ``expression``; None for other forms."""
        kind, operand = self.pool.kinds[expression], self.pool.operands[expression]
        if kind == Kind.PIECE:
            return self.pieces[operand[0]], operand[1]
        if kind == Kind.HOLE:
            pieces = self.pieces[expression]
            return pieces, pieces.start
        return None

    def leaf(self, expression: Expression) -> tuple[Pieces, Leaf]:
        """``filled`` for an expression that must be a piece."""
        filled = self.filled(expression)
        assert filled is not None
        return filled

    def piece(self, hole: Expression, leaf: Leaf) -> Expression:
        """The expression of a leaf from which an end can be reached."""
        nullable = self.pieces[hole].is_end(leaf)
        return self.pool.node(Kind.PIECE, (hole, leaf), nullable=nullable, regular=True)

    def hole_of(self, expression: Expression) -> Expression:
        """The hole that a piece fills."""
        operand = self.pool.operands[expression]
        return operand[0] if self.pool.kinds[expression] == Kind.PIECE else expression

    def follow(self, expression: Expression, text: bytes, at: int) -> tuple[Expression, int]:
        """Follow a piece along ``text`` from ``at`` as far as possible: its rest, and the index."""
        pieces, leaf = self.leaf(expression)
        after, stop = follow(pieces.places, leaf, np.frombuffer(text, np.uint8), at)
        self.spend(1 + (stop - at) // 8)
        return (self.piece(self.hole_of(expression), after) if stop > at else expression), stop

    def branches(self, expression: Expression) -> bool:
        """Whether several bytes may follow in a piece; False if that is not obvious."""
        self.spend(24)
        pieces, leaf = self.leaf(expression)
        return pieces.branches(leaf)

    def is_alive(self, expression: Expression) -> bool:
        kind = self.pool.kinds[expression]
        if kind == Kind.PIECE:
            return True
        return self.pieces[expression].any if kind == Kind.HOLE else super().is_alive(expression)

    def _row(self, expression: Expression) -> Row:
        filled = self.filled(expression)
        if filled is None:
            return super()._row(expression)
        pieces, leaf = filled
        if not pieces.any:
            return []
        hole = self.hole_of(expression)
        self.spend(24)
        return [(1 << byte, self.piece(hole, after)) for byte, after in pieces.row(leaf)]

    def _length(self, expression: Expression) -> int:
        filled = self.filled(expression)
        if filled is None:
            return super()._length(expression)
        pieces, leaf = filled
        return pieces.length(leaf) if pieces.any else INFINITE

    def _shortest_piece(self, hole: Expression) -> bytes:
        pieces, leaf = self.leaf(hole)
        return pieces.shortest(leaf)


def holes_of(program: Program) -> list[Hole]:
    """The holes of a program, in the order in which they were made."""
    return [operand[0] for operand in program.derivatives.pool.index[Kind.HOLE]]


def bind(program: Program, documents: Mapping[Source, Document]) -> Program:
    """A copy of ``program`` with its holes filled. Several threads may bind one program.

    Raises ``UnsatisfiableSchema`` if no answer is left, as the documents have no piece that fits,
    and ``ConstraintTooComplex`` for patterns with too many states for the documents.
    """
    pool = program.derivatives.pool.copy(program.derivatives.pool.max_nodes)
    pieces: dict[Expression, Pieces] = {}
    known: dict[Hole, Pieces] = {}  # equal holes share their pieces
    room = MOST_PAIRS
    for expression, kind in enumerate(pool.kinds):
        if kind == Kind.HOLE:
            hole = pool.operands[expression][0]
            key = replace(hole, pointer="")
            if key not in known:
                known[key] = Pieces(documents[hole.source], hole, room)
                room -= known[key].pairs
            pieces[expression] = known[key]
    derivatives = BoundDerivatives(pool, pieces)
    derivatives.allow(_BIND_WORK)
    derivatives.measure()
    empty = derivatives.length(program.root) >= INFINITE
    derivatives.allow(UNBOUNDED)
    if empty:
        raise UnsatisfiableSchema(_missing([each.hole for each in pieces.values() if not each.any]))
    return Program(program.root, derivatives, program.characters, notation=program.notation)


def _missing(holes: Sequence[Hole]) -> str:
    """The error message if the documents lack a piece."""
    if not holes:
        return "no value of this schema can be made of quotes from the prompt"
    hole = holes[0]
    where = "the user's text" if hole.source.part is None else hole.source.part
    bounds = [f"of at least {hole.low} characters"] if hole.low else []
    bounds += [f"of at most {hole.high} characters"] if hole.high is not None else []
    bounds += ["that matches the pattern"] if hole.pattern else []
    return (
        f"{where} contains no quote {' and '.join(bounds) or 'that fits'} for the x-verbatim "
        f"string at {hole.pointer or 'the root'}; allow null or a shorter quote"
    )


_UNBOUNDED = 1 << 30
"""``high`` where there is no bound."""

MOST_PAIRS = 1 << 25
"""Maximum positions in a document times states of a pattern, for all patterns of a constraint: 64
MiB, some 0.1 s."""


class Pieces:
    """The pieces of one document that a hole admits, as leaves and their successors. Immutable.

    Raises ``ConstraintTooComplex`` if a pattern has too many states for the document.
    """

    def __init__(self, document: Document, hole: Hole, room: int) -> None:
        """``room``: maximum pairs of positions and states."""
        self.document = document
        self.hole = hole
        rows = np.frombuffer(hole.pattern, np.int16).reshape(-1, 256).copy()
        finals = np.frombuffer(hole.finals, np.uint8).copy()
        far = np.zeros((0, 0), np.uint16)
        high = _UNBOUNDED if hole.high is None else min(hole.high, _UNBOUNDED)
        if len(finals):
            if len(document.data) * len(finals) > room or len(finals) > 32_000:
                raise ConstraintTooComplex(
                    "the patterns beside x-verbatim are too large for this text: their states "
                    f"times its bytes exceed {MOST_PAIRS}; shorten one of them"
                )
            far, last = to_ends(document.data, document.fed, document.is_end, rows, finals)
            low, match = 0, 0
            self._may_be_empty = bool(finals[0])
        else:
            low, last, match = hole.low, document.last(hole.low, high), NONE
            self._may_be_empty = low <= 0
        sizes = last[document.starts] - document.starts
        longest = np.maximum.reduceat(sizes, np.arange(0, len(sizes), TOGETHER))
        self.places = Places(
            document.data, document.fed, document.chars, document.stop, document.starts,
            document.words, last, longest, rows, far, low,
        )  # fmt: skip
        self.walks = document.walks if match == NONE else WalkCache()
        self.bounds = (hole.low, hole.high) if match == NONE else None
        """Part of the key of cached walks in the document; None with a pattern."""
        self.start: Leaf = (0, len(document.starts), 0, match)
        self.any = self.length(self.start) >= 0
        """Whether there is a piece at all."""

    @property
    def pairs(self) -> int:
        """Pairs of positions and states."""
        return self.places.far.size

    @property
    def nbytes(self) -> int:
        """Memory in bytes, without the document's."""
        walks = 0 if self.walks is self.document.walks else self.walks.nbytes
        return self.places.rows.nbytes + self.places.far.nbytes + self.places.last.nbytes + walks

    def is_end(self, leaf: Leaf) -> bool:
        return self.length(leaf) == 0

    def branches(self, leaf: Leaf) -> bool:
        """Whether several bytes may follow; cheap, and False if that is not obvious."""
        first, end, size, match = leaf
        if match != NONE or first == end:
            return False
        begins = self.places.starts[[first, end - 1]]
        continues = self.places.last[begins] > begins + size
        nexts = self.places.data[begins + size]
        return bool(continues.all()) and (nexts[0] != nexts[1] or self.is_end(leaf))

    def is_between(self, leaf: Leaf) -> bool:
        """Whether the text so far ends between two characters, not inside one or its escape."""
        return leaf[2] == 0 or self._is_border(int(self.places.starts[leaf[0]]) + leaf[2])

    def _is_border(self, at: int) -> bool:
        return bool(self.places.chars[at + 1] > self.places.chars[at])

    def length(self, leaf: Leaf) -> int:
        """Bytes of JSON to an end; -1 if there is none."""
        return self._nearest(leaf)[0]

    def _nearest(self, leaf: Leaf) -> tuple[int, int]:
        """``length``, and the position in the document from which it is counted."""
        if leaf[2] == 0 and self._may_be_empty:
            return 0, 0
        owed, at = least_owed(self.places, leaf)
        return int(owed), int(at)

    def row(self, leaf: Leaf) -> list[tuple[int, Leaf]]:
        """Each next byte, and the leaf after it."""
        found = bytes_after(self.places, leaf).tolist()
        return [(byte, (first, end, size, state)) for byte, first, end, size, state in found]

    def shortest(self, leaf: Leaf) -> bytes:
        """A text of ``length`` bytes of JSON that leads to an end."""
        owed, at = self._nearest(leaf)
        return self.places.data[at : at + owed].tobytes()

    def quoted(self, leaf: Leaf, most: int) -> bytes:
        """The document's continuation of the first occurrence of the piece, spelled as JSON.

        Up to ``most`` bytes of complete characters; b"" before the first byte of a piece.
        """
        first, end, size, _ = leaf
        if size == 0:
            return b""
        at: Int32s = self.places.starts[first:end] + size
        begin = int(at[self.places.last[at - size] >= at].min())
        rest = self.places.data[begin : begin + most]
        breaks = np.flatnonzero(rest == BREAK)
        stop = begin + (int(breaks[0]) if len(breaks) else len(rest))
        while stop > begin and not self._is_border(stop):
            stop -= 1
        return self.places.data[begin:stop].tobytes()
