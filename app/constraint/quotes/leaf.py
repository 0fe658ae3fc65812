"""The states of a piece in one hole of a schema: a document with the hole's bounds and pattern."""

from __future__ import annotations

import numpy as np

from app.constraint.quotes.document import Document, KeptWalks
from app.constraint.quotes.positions import (
    BREAK,
    NONE,
    TOGETHER,
    Int32s,
    Leaf,
    Places,
    UInt8s,
    bytes_after,
    follow,
    least_owed,
    to_ends,
)
from app.core.errors import ConstraintTooComplex
from app.core.verbatim import Hole

_UNBOUNDED = 1 << 30
"""``high`` where there is no bound."""

MOST_PAIRS = 1 << 25
"""Positions in a document times states of a pattern that are worked out for one constraint, all its
patterns together: 64 MiB, some 0.1 s."""


class Pieces:
    """What one hole admits of one document: leaves, and what follows them. Immutable.

    Raises ``ConstraintTooComplex`` where a pattern has too many states for the document.
    """

    def __init__(self, document: Document, hole: Hole, room: int = MOST_PAIRS) -> None:
        """``room``: how many pairs of positions and states may be worked out for it."""
        self.document = document
        self.hole = hole
        rows = np.frombuffer(hole.pattern, np.int16).reshape(-1, 256).copy()
        finals = np.frombuffer(hole.finals, np.uint8).copy()
        far = np.zeros((0, 0), np.uint16)
        high = _UNBOUNDED if hole.high is None else min(hole.high, _UNBOUNDED)
        if len(finals):
            pairs = len(document.data) * len(finals)
            if pairs > room or len(finals) > 32_000:
                raise ConstraintTooComplex(
                    "patterns beside x-verbatim have too many states for this text: their states "
                    f"times its bytes are more than {MOST_PAIRS}; shorten one or the other"
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
        self.walks = document.walks if match == NONE else KeptWalks()
        self.bounds = (hole.low, hole.high) if match == NONE else None
        """What tells walks in the document apart."""
        self.start: Leaf = (0, len(document.starts), 0, match)
        self.any = self.length(self.start) >= 0
        """Whether there is a piece at all."""

    @property
    def pairs(self) -> int:
        """Pairs of positions and states that were worked out."""
        return self.places.far.size

    @property
    def nbytes(self) -> int:
        """Memory beside the document's."""
        walks = 0 if self.walks is self.document.walks else self.walks.nbytes
        return self.places.rows.nbytes + self.places.far.nbytes + self.places.last.nbytes + walks

    def is_end(self, leaf: Leaf) -> bool:
        return self.length(leaf) == 0

    def branches(self, leaf: Leaf) -> bool:
        """Whether surely several bytes may follow; cheap, and False where that takes a look."""
        first, end, size, match = leaf
        if match != NONE or first == end:
            return False
        begins = self.places.starts[[first, end - 1]]
        going_on = self.places.last[begins] > begins + size
        nexts = self.places.data[begins + size]
        return bool(going_on.all()) and (nexts[0] != nexts[1] or self.is_end(leaf))

    def is_between(self, leaf: Leaf) -> bool:
        """Whether the piece is between two characters, and not inside one or its escape."""
        return leaf[2] == 0 or self._is_border(int(self.places.starts[leaf[0]]) + leaf[2])

    def _is_border(self, at: int) -> bool:
        return bool(self.places.chars[at + 1] > self.places.chars[at])

    def length(self, leaf: Leaf) -> int:
        """Bytes of JSON to an end; -1 where there is none."""
        return self._nearest(leaf)[0]

    def _nearest(self, leaf: Leaf) -> tuple[int, int]:
        """The same, and where in the document that is."""
        if leaf[2] == 0 and self._may_be_empty:
            return 0, 0
        owed, at = least_owed(*self.places, leaf)
        return int(owed), int(at)

    def row(self, leaf: Leaf) -> list[tuple[int, Leaf]]:
        """Each next byte, and the leaf that it leads to."""
        at = self.places
        found = bytes_after(at.data, at.fed, at.starts, at.last, at.longest, at.rows, leaf)
        return [
            (byte, (first, end, size, state)) for byte, first, end, size, state in found.tolist()
        ]

    def follow(self, leaf: Leaf, text: UInt8s, at: int) -> tuple[Leaf, int]:
        """As far along ``text`` as the piece goes from ``at``: the leaf there, and where."""
        leaf, at = follow(*self.places, leaf, text, at)
        return leaf, at

    def shortest(self, leaf: Leaf) -> bytes:
        """The bytes of JSON to the end that ``length`` tells of, or to one as near."""
        owed, at = self._nearest(leaf)
        return self.places.data[at : at + owed].tobytes()

    def quoted(self, leaf: Leaf, most: int) -> bytes:
        """What the document goes on with where the piece stands in it first, spelled as JSON.

        Up to ``most`` bytes, without half a character; b"" where nothing is begun yet.
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
