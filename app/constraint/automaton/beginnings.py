"""Tokens that begin a literal, or one of many words.

The words of an ``enum`` are looked up together instead of branch by branch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.automaton import Automaton
from app.constraint.automaton.bits import set_bits
from app.constraint.automaton.bounds_relaxation import BoundsRelaxation
from app.constraint.automaton.trie import Int32s, UInt8s
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.language.expressions import Expression, Kind
from app.core.constraint import Mask
from app.core.kernels import kernel

_FEWEST_WORDS = 8
"""Minimum members of a union that are looked up together."""

_WORDS_PER_STEP = 2
"""Words looked up in the time of one step of work."""

Part = tuple[Expression, Expression, bytes]
"""An expression, its tail, and the text before both with which a token begins."""


class Beginnings:
    """Looks up literals and words of one automaton over one vocabulary. One thread at a time."""

    def __init__(
        self, automaton: Automaton, index: VocabularyIndex, bounds: BoundsRelaxation
    ) -> None:
        self._automaton = automaton
        self._bounds = bounds
        self._index = index
        self._found = np.empty(index.longest + 1, np.int32)
        self._literals: dict[tuple[bytes, bytes], tuple[Int32s, int, bool]] = {}
        """By a literal and the text before it: tokens, the maximum bytes of the literal after any
        of them, and whether some token is longer."""
        self._words: dict[Expression, tuple[UInt8s, NDArray[np.int64], list[bytes]] | None] = {}
        """The words of a union: end to end, where each ends, and as a list."""
        self._words_bytes = 0

    @property
    def nbytes(self) -> int:
        """Memory in bytes. Any thread may read it."""
        return 400 * len(self._literals) + 150 * len(self._words) + self._words_bytes

    def literal(
        self, here: Expression, literal: bytes, tail: Expression, text: bytes, mask: Mask
    ) -> tuple[int, list[Part]]:
        """Set the tokens that are ``text`` and then a prefix of ``literal``.

        ``here`` begins with the literal, and ``tail`` follows it. Returns the maximum bytes of a
        completion after any of these tokens, and the part after the literal if a token reaches it.
        """
        known = self._literals.get((literal, text))
        if known is None:
            trie, found, whole = self._index.trie, self._found, text + literal
            raw = np.frombuffer(whole, np.uint8)
            count, least, node = prefixes(trie.byte, trie.skip, trie.token, raw, len(text), found)
            known = self._literals[literal, text] = (
                found[:count].copy(),
                len(whole) - least,
                node >= 0,
            )
        tokens, left, is_through = known
        far = 0
        if len(tokens):
            set_bits(mask, tokens)
            length = self._automaton.derivatives.length
            far = left + length(here) - len(literal) + length(tail)
        if not is_through:
            return far, []
        return far, [(self._automaton.skip_literal(here, len(literal)), tail, text + literal)]

    def words(
        self, head: Expression, tail: Expression, text: bytes, mask: Mask
    ) -> tuple[int, list[Part]] | None:
        """``literal`` for a union of words and then ``tail``; None if ``head`` is not one."""
        known = self._words_of(head)
        if known is None:
            return None
        flat, ends, words = known
        trie = self._index.trie
        self._automaton.derivatives.spend(len(words) // _WORDS_PER_STEP)
        start = trie.find(text) if text else -1
        nodes = np.empty(len(words), np.int32)
        far = set_word_prefixes(trie.byte, trie.skip, trie.token, start, flat, ends, nodes, mask)
        passed = np.flatnonzero(nodes >= 0).tolist()
        through = [(tail, self._automaton.pool.epsilon, text + words[index]) for index in passed]
        return (far + self._automaton.derivatives.length(tail) if far >= 0 else 0), through

    def _words_of(self, head: Expression) -> tuple[UInt8s, NDArray[np.int64], list[bytes]] | None:
        if head not in self._words:
            pool = self._automaton.pool
            words = None
            if pool.kinds[head] == Kind.UNION and len(pool.operands[head]) >= _FEWEST_WORDS:
                words = self._bounds.listed(head)
            if not words or b"" in words:
                self._words[head] = None
            else:
                ordered = sorted(words)
                ends = np.cumsum([len(word) for word in ordered], dtype=np.int64)
                flat = np.frombuffer(b"".join(ordered), np.uint8)
                self._words_bytes += 2 * len(flat) + 100 * len(ordered)
                self._words[head] = flat, ends, ordered
        return self._words[head]


@kernel()
def prefixes(
    byte: UInt8s, skip: Int32s, token: Int32s, text: UInt8s, above: int, found: Int32s
) -> tuple[int, int, int]:
    """Write the strings of the trie that are prefixes of ``text`` to ``found``, those longer than
    ``above``.

    Returns their number, the length of the shortest, and the node of ``text``, -1 if no string is
    longer.
    """
    node, end, count, least = 0, len(byte), 0, 0
    for position in range(len(text)):
        while node < end and byte[node] != text[position]:
            node = skip[node]
        if node >= end:
            return count, least, -1
        if token[node] >= 0 and position >= above:
            if count == 0:
                least = position + 1
            found[count] = token[node]
            count += 1
        end = skip[node]
        node += 1
    return count, least, node - 1 if node < end else -1


@kernel()
def set_word_prefixes(
    byte: UInt8s, skip: Int32s, token: Int32s, start: int,
    flat: UInt8s, ends: NDArray[np.int64], nodes: Int32s, mask: NDArray[np.uint32],
) -> int:  # fmt: skip
    """Set the strings of the trie that are prefixes of words, below the node ``start`` (-1: all).

    ``flat`` has the words end to end. ``nodes[i]`` gets the node of word i, -1 if no string is
    longer. Returns the maximum bytes of a word after its shortest prefix, -1 if there is no prefix.
    """
    most, first = -1, 0
    for index in range(len(ends)):
        node, end = 0, len(byte)
        if start >= 0:
            node, end = start + 1, skip[start]
        nodes[index] = -1
        is_first = True
        for position in range(first, ends[index]):
            while node < end and byte[node] != flat[position]:
                node = skip[node]
            if node >= end:
                break
            if token[node] >= 0:
                if is_first:
                    most = max(most, ends[index] - position - 1)
                    is_first = False
                mask[token[node] >> 5] |= np.uint32(1) << np.uint32(token[node] & 31)
            if position == ends[index] - 1 and skip[node] > node + 1:
                nodes[index] = node
            end = skip[node]
            node += 1
        first = ends[index]
    return most
