"""An index of a vocabulary for the masks of any constraint, built once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.automaton import START, Automaton
from app.constraint.automaton.bits import set_bits
from app.constraint.automaton.shared_languages import SharedLanguages
from app.constraint.automaton.trie import Int32s, Trie, classify
from app.constraint.json.text import SPELLINGS
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import ByteSet, Expression, ExpressionPool
from app.constraint.language.rewriting import missing_bytes, spelled
from app.constraint.program import Program
from app.core.constraint import Mask, Vocabulary
from app.core.json_scan import BLANKS

ONCE = 1
"""Index in ``VocabularyIndex.strings`` of one spelling for each character, as in pieces."""


@dataclass(frozen=True, slots=True)
class StringTokens:
    """The tokens of a vocabulary inside a JSON string.

    A token that stays within the string is known by its number of characters; one that crosses
    the closing quote also by its ending, the text from the quote on.
    """

    needs: Int32s
    """Shape [L], ascending: the numbers of characters of tokens within a string."""
    within: NDArray[np.uint32]
    """Shape [L, W]: row i is the mask of the tokens that need at most ``needs[i]`` characters."""
    endings: Trie
    """Endings of crossing tokens."""
    ending: Int32s
    """Shape [N]: for each crossing token, its string in ``endings``."""
    characters: Int32s
    """Shape [N]: for each crossing token, its complete characters before the quote."""
    token: Int32s
    """Shape [N]: for each crossing token, its id."""

    def within_mask(self, high: int) -> Mask | None:
        """Tokens that stay within a string of at most ``high`` more characters. Read only."""
        row = int(np.searchsorted(self.needs, high, side="right")) - 1
        return self.within[row] if row >= 0 else None


class VocabularyIndex:
    """A vocabulary, indexed for masks. Immutable except for the cache ``heads``.

    Cost to build: about half a second for 150,000 tokens; memory about 30 bytes a trie node and
    one mask for each length that tokens have in characters.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.size = vocabulary.size
        self.words = (vocabulary.size + 31) // 32
        self.token_bytes = vocabulary.token_bytes
        self.trie = Trie.build(vocabulary.token_bytes)
        self.eos = np.array(sorted(vocabulary.eos_ids), np.int32)
        self.eos_ids = vocabulary.eos_ids
        self.longest = int(self.trie.depth.max(initial=0)) + 1
        missing = missing_bytes(vocabulary.token_bytes)
        self.characters = tuple(_character_automaton(each, missing) for each in SPELLINGS.values())
        """For each of the ``SPELLINGS`` of a character: its transitions and accepting states."""
        self.strings = tuple(self._sort_string_tokens(*each) for each in self.characters)
        """For each of the ``SPELLINGS`` of a character: the tokens in strings of it."""
        self.unquoted = self._mask_of(lambda text: b'"' not in text)
        """The tokens that have no quote, and so do not end a string."""
        self.not_closing = self._mask_of(lambda text: text.lstrip(BLANKS)[:1] not in (b"]", b"}"))
        """The tokens that do not begin with a closing bracket, blanks aside."""
        self.heads = SharedLanguages()

    @cached_property
    def ending_of_tokens(self) -> Int32s:
        """Shape [V]: for tokens that cross the end of a string of characters spelled once, their
        string in ``endings``; else 0."""
        strings = self.strings[ONCE]
        ending = np.zeros(self.size, np.int32)
        ending[strings.token] = strings.ending
        return ending

    def beginning(self, text: bytes) -> Int32s:
        """Tokens that spell ``text``, one or more bytes, and then anything; ascending."""
        trie, node = self.trie, self.trie.find(text)
        return self._all(trie.token[node : trie.skip[node]] if node >= 0 else trie.token[:0])

    def spelled(self, text: bytes) -> Int32s:
        """Tokens that spell ``text``, one or more bytes, and nothing else; ascending."""
        trie, node = self.trie, self.trie.find(text)
        return self._all(trie.token[node : node + 1] if node >= 0 else trie.token[:0])

    def _all(self, tokens: Int32s) -> Int32s:
        """``tokens`` without -1, and their duplicates; ascending."""
        found = tokens[tokens >= 0]
        pairs = self.trie.duplicates  # the trie has one of the tokens with equal bytes
        return np.sort(np.concatenate([found, pairs[np.isin(pairs[:, 0], found), 1]]))

    def _mask_of(self, has: Callable[[bytes], bool]) -> Mask:
        """The mask of the tokens for whose bytes ``has`` is true."""
        mask, texts = self.new_mask(), enumerate(self.token_bytes)
        set_bits(mask, np.array([token for token, text in texts if text and has(text)], np.int32))
        return mask

    def new_mask(self) -> Mask:
        return np.zeros(self.words, np.uint32)

    def _sort_string_tokens(self, automaton: Int32s, accepting: NDArray[np.bool_]) -> StringTokens:
        need = np.full(self.size, -1, np.int32)
        crossing = np.full((self.size, 2), -1, np.int32)
        classify(*self.trie.arrays, automaton, accepting, START, need, crossing)
        for source, target in self.trie.duplicates:
            need[target] = need[source]
            crossing[target] = crossing[source]
        needs = np.unique(need[need >= 0])
        within = np.zeros((len(needs), self.words), np.uint32)
        for row, most in enumerate(needs):
            set_bits(within[row], np.flatnonzero((need >= 0) & (need <= most)).astype(np.int32))
        tokens = np.flatnonzero(crossing[:, 0] >= 0).astype(np.int32)
        endings: dict[bytes, int] = {}
        ending = np.zeros(len(tokens), np.int32)
        for row, token in enumerate(tokens):
            text = (self.token_bytes[int(token)] or b"")[crossing[token, 1] :]
            ending[row] = endings.setdefault(text, len(endings))
        characters = np.ascontiguousarray(crossing[tokens, 0])
        return StringTokens(needs, within, Trie.build(list(endings)), ending, characters, tokens)


def _character_automaton(
    spelling: Callable[[ExpressionPool], Expression], missing: ByteSet
) -> tuple[Int32s, NDArray[np.bool_]]:
    """The complete automaton of a string character: transitions [S, 256] and accepting states."""
    pool = ExpressionPool()
    root = spelled(pool, spelling(pool), missing)
    if root == pool.empty:
        return np.zeros((START + 1, 256), np.int32), np.zeros(START + 1, np.bool_)
    derivatives = Derivatives(pool)
    derivatives.measure()
    automaton = Automaton(Program(root, derivatives))
    state = START
    while state < len(automaton):
        automaton.expand(state)
        state += 1
    transitions = np.zeros((len(automaton), 256), np.int32)
    transitions[START:] = automaton.transitions[automaton.rows[START : len(automaton)]]
    accepting = np.array([s >= START and automaton.is_accepting(s) for s in range(len(automaton))])
    return transitions, accepting
