"""A process-wide cache of the tokens that heads allow, whatever follows them.

The digits of a number, the text of a string or a format are the same in every schema. Heads are
compared by structure: equal expressions of all pools get the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from app.constraint.automaton.bits import set_bits
from app.constraint.automaton.trie import Int32s
from app.constraint.automaton.walks import Bools
from app.constraint.language.expressions import Expression, ExpressionPool, Kind
from app.core.constraint import Mask

_MOST_BYTES = 32 << 20
"""Bytes of cached heads beyond which the cache is cleared."""
_MOST_NUMBERS = 200_000


@dataclass(frozen=True, slots=True)
class Head:
    """The tokens that a language allows by itself, after a text with which they begin."""

    tokens: Int32s
    """Tokens that stay within it; empty if they are in ``mask``."""
    mask: Mask | None
    far: int
    """Maximum bytes to its end after any of these tokens."""
    exits: Int32s
    """Nodes of the trie at which a token leaves it from one of its ends."""
    continues: Bools
    """Shape [256]: the bytes by which it continues from one of its ends."""

    @property
    def nbytes(self) -> int:
        mask = 0 if self.mask is None else self.mask.nbytes
        return self.tokens.nbytes + self.exits.nbytes + mask + 800


def new_head(tokens: Int32s, far: int, exits: Int32s, continues: Bools, words: int) -> Head:
    """A head that allows ``tokens``; as a mask of ``words`` words if that is smaller."""
    if len(tokens) <= words:
        return Head(tokens.copy(), None, far, exits.copy(), continues)
    mask = np.zeros(words, np.uint32)
    set_bits(mask, tokens)
    return Head(tokens[:0].copy(), mask, far, exits.copy(), continues)


class SharedLanguages:
    """The heads of one vocabulary, for all constraints over it. Any thread may use it."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._next = count()  # never reset: numbers must stay unique
        self._heads: dict[tuple[int, bytes], Head] = {}
        self._bytes = 0

    def find(self, number: int, text: bytes) -> Head | None:
        """The head of a language by its number, after ``text``."""
        return self._heads.get((number, text))

    def keep(self, number: int, text: bytes, head: Head) -> None:
        if self._bytes > _MOST_BYTES:
            self._heads.clear()
            self._bytes = 0
        self._heads[number, text] = head
        self._bytes += head.nbytes

    def number(self, key: Any) -> int:
        """The number of ``key``, a form with its parts' numbers."""
        known = self._numbers.get(key)
        if known is None:
            if len(self._numbers) > _MOST_NUMBERS:
                self._numbers.clear()
            known = self._numbers.setdefault(key, next(self._next))
        return known


class Numbering:
    """The common numbers of the expressions of one pool, memoised."""

    def __init__(self, pool: ExpressionPool, heads: SharedLanguages) -> None:
        self._pool = pool
        self._heads = heads
        self._known: dict[Expression, int] = {}

    def __len__(self) -> int:
        """Number of cached numbers. Any thread may read it."""
        return len(self._known)

    def of(self, expression: Expression) -> int:
        """The number of ``expression``, which contains no rule."""
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = self._heads.number(self._key(expression))
        return known

    def _key(self, expression: Expression) -> Any:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.CONCATENATION:
            return kind, *map(self.of, pool.pieces(expression))
        if kind in (Kind.UNION, Kind.INTERSECTION):
            return kind, *sorted(map(self.of, operand))
        if kind == Kind.COMPLEMENT:
            return kind, self.of(operand)
        if kind == Kind.REPETITION:
            return kind, self.of(operand[0]), *operand[1:]
        if kind == Kind.HOLE or kind == Kind.PIECE:
            return object()  # filled by a document: not shared with other constraints
        assert pool.regular[expression]
        return kind, operand
