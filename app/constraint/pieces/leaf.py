"""The states of a piece in one hole of a schema: a document with the hole's bounds and pattern."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.constraint.pieces.document import Document, KeptWalks
from app.constraint.pieces.steps import (
    COST,
    NONE,
    RAW,
    ROOMIEST,
    SPELLED,
    Leaf,
    fits,
    is_end,
    least_owed,
)
from app.constraint.pieces.suffixes import MARK, UInt8s, matching
from app.constraint.pieces.ways import follow, row, spell
from app.core.errors import ConstraintTooComplex
from app.core.verbatim import Hole

UNBOUNDED = (1 << 30) - 1
"""``high`` where there is no bound."""

_ROOM = 16
"""Bytes above what is owed that are kept free for spelling."""

MOST_PAIRS = 1 << 25
"""States of a document times states of a pattern that are worked out for one constraint, all its
patterns together: 64 MiB, some 0.3 s."""


class Pieces:
    """What one hole admits of one document: leaves, and what follows them. Immutable.

    Raises ``ConstraintTooComplex`` where a pattern has too many states for the document.
    """

    def __init__(self, document: Document, hole: Hole, room: int = MOST_PAIRS) -> None:
        """``room``: how many pairs of states may be worked out for it."""
        self.document = document
        self.hole = hole
        self.places = document.places
        low, high = hole.low, UNBOUNDED if hole.high is None else min(hole.high, UNBOUNDED)
        rows, finals = _pattern(hole)
        if not len(finals) and 1 < low <= high < low + document.widest - 1:
            _check_pairs(1, high + 1, room)
            rows, finals = _counting(low, high)
        match = NONE
        if len(finals):
            _check_pairs(document.states, len(finals), room)
            self.places = document.places._replace(rows=rows, far=_far(document, rows, finals))
            low, high, match = 0, UNBOUNDED, 0
        nodes, far, root = self.places.nodes, self.places.far, self.places.root
        self.walks = document.walks if match == NONE else KeptWalks()
        self.start: Leaf = (root, 0, low, high, match)
        self.any = bool(fits(nodes, far, root, root, low, high, match))
        """Whether there is a piece at all."""

    @property
    def pairs(self) -> int:
        """Pairs of states that were worked out."""
        return self.places.far.size

    @property
    def nbytes(self) -> int:
        """Memory beside the document's."""
        walks = 0 if self.walks is self.document.walks else self.walks.nbytes
        return self.places.rows.nbytes + self.places.far.nbytes + walks

    def is_end(self, leaf: Leaf) -> bool:
        return bool(is_end(self.places.nodes, self.places.far, self.places.root, leaf))

    def goes_on(self, leaf: Leaf) -> bool:
        """Whether something more surely may follow: cheap, and False where that takes a look."""
        place, escape, _, high, state = leaf
        nodes = self.places.nodes
        return (
            escape == 0 and state < 0 and high > 0 and bool(nodes[place, 0] < nodes[place + 1, 0])
        )

    def is_between(self, leaf: Leaf) -> bool:
        """Whether the piece is between two characters, and not inside one or its escape."""
        at, data = self.places.nodes[leaf[0], ROOMIEST], self.document.data
        return leaf[1] == 0 and (at == len(data) or bool((data[at] & 0xC0) != 0x80))

    def length(self, leaf: Leaf) -> int:
        """Bytes of JSON to an end: the next one, unless a minimum asks to go further."""
        return int(least_owed(*self.places, leaf))

    def row(self, leaf: Leaf) -> list[tuple[int, Leaf]]:
        """Each next byte, and the leaf that it leads to."""
        leaves = np.empty((256, 5), np.int32)
        row(*self.places, leaf, leaves)
        alive = np.flatnonzero(leaves[:, 0] >= 0)
        return [
            (byte, (values[0], values[1], values[2], values[3], values[4]))
            for byte, values in zip(alive.tolist(), leaves[alive].tolist(), strict=True)
        ]

    def follow(self, leaf: Leaf, text: UInt8s, at: int) -> tuple[Leaf, int]:
        """As far along ``text`` as the piece goes from ``at``: the leaf there, and where."""
        leaf, at = follow(*self.places, leaf, text, at)
        return leaf, at

    def shortest(self, leaf: Leaf) -> bytes:
        """The bytes of JSON to the end that ``length`` tells of, or to one as near."""
        written = np.empty(self.length(leaf) + _ROOM, np.uint8)
        return written[: spell(*self.places, leaf, written)].tobytes()

    def quoted(self, leaf: Leaf, most: int) -> bytes:
        """What the document goes on with where the piece stands in it first, spelled as JSON.

        Up to ``most`` bytes, without half a character; b"" where nothing is begun yet.
        """
        place, escape = leaf[:2]
        if escape or place == self.places.root:
            return b""
        at = int(self.document.earliest[place])
        raw = self.document.data[at : at + most]
        ends = np.flatnonzero(raw == 0xFE)
        raw = raw[: ends[0]] if len(ends) else raw
        size = int(np.searchsorted(np.cumsum(COST[raw]), most, side="right"))
        return _spelled(raw[:size])


def _spelled(raw: UInt8s) -> bytes:
    """Raw bytes as JSON spells them in strings; cut before a character that is not whole."""
    parts = []
    for byte in raw[raw != MARK].tolist():
        kind = SPELLED[byte]
        letter = np.flatnonzero(byte == RAW)
        if kind == 0:
            parts.append(bytes([byte]))
        else:
            parts.append(b"\\" + bytes([letter[0]]) if kind == 1 else b"\\u%04x" % byte)
    text = b"".join(parts)
    return text.decode(errors="ignore").encode()


def _pattern(hole: Hole) -> tuple[NDArray[np.int16], UInt8s]:
    rows = np.frombuffer(hole.pattern, np.int16).reshape(-1, 256).copy()
    return rows, np.frombuffer(hole.finals, np.uint8).copy()


def _counting(low: int, high: int) -> tuple[NDArray[np.int16], UInt8s]:
    """A pattern that counts characters, where a window between words is narrow."""
    rows = np.full((high + 1, 256), -1, np.int16)
    counts = np.arange(high + 1)
    rows[:, 0x80:0xC0] = counts[:, None]
    begins = [*range(0x80), *range(0xC0, 0xF8)]
    rows[:-1, begins] = counts[1:, None]
    return rows, (counts >= low).astype(np.uint8)


def _check_pairs(states: int, patterns: int, room: int) -> None:
    if states * patterns > room or patterns > 32_000:
        raise ConstraintTooComplex(
            f"patterns beside x-verbatim: more than {MOST_PAIRS} states times those of the document"
        )


def _far(document: Document, rows: NDArray[np.int16], finals: UInt8s) -> NDArray[np.uint16]:
    """``Places.far`` for a pattern."""
    places = document.places
    far = matching(document.order, places.nodes, places.edges, COST, rows, finals)
    if document.words and finals[0]:
        far[places.root, 0] = 0  # the empty piece
    return far
