"""What masks need to know of a vocabulary, whatever the constraint: built once per process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.automaton import START, Automaton
from app.constraint.automaton.bits import set_bits
from app.constraint.automaton.heads import SharedHeads
from app.constraint.automaton.trie import Int32s, Trie, classify
from app.constraint.json.text import SPELLINGS
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import ByteSet, Expression, ExpressionPool
from app.constraint.language.spelling import missing_bytes, spelled
from app.constraint.program import Program
from app.core.constraint import Mask, Vocabulary

_BLANKS = b" \n\r\t"
_INTO_ITEM = re.compile(rb"[\[{,][ \n\r\t]*[^ \n\r\t]")
"""Where an item or a member begins behind something else."""
_OUT_INTO_ITEM = re.compile(rb"\"[^\[{,]*[\[{,][ \n\r\t]*[^ \n\r\t]")
"""The same behind the end of a text."""
_INTO_TWO_ITEMS = re.compile(rb"[\[{,][ \n\r\t]*[^ \n\r\t](?s:.)*,[ \n\r\t]*[^ \n\r\t]")
"""Where two of them do."""


@dataclass(slots=True)
class TextTree:
    """Some texts of a sequence, by their bytes."""

    ways: dict[int, TextTree] = field(default_factory=dict)
    """By the next byte."""
    numbers: list[int] = field(default_factory=list)
    """Where in the sequence the texts are that end here."""
    height: int = 0
    """Bytes of the longest of what is below."""

    @classmethod
    def of(cls, texts: Sequence[bytes | None], numbers: Iterable[int]) -> TextTree:
        """Those of ``texts`` with these ``numbers``."""
        root = cls()
        for number in numbers:
            node, text = root, texts[number] or b""
            for place, byte in enumerate(text):
                node.height = max(node.height, len(text) - place)
                node = node.ways.setdefault(byte, cls())
            node.numbers.append(number)
        return root


@dataclass(frozen=True, slots=True)
class StringTokens:
    """The tokens of a vocabulary by what they do inside a JSON string.

    A token either stays within the string, where only its number of characters matters, or
    crosses the closing quote, and then it matters, too, what it spells from there on.
    """

    needs: Int32s
    """Shape [L], ascending: numbers of characters that some token within a string takes up."""
    within: NDArray[np.uint32]
    """Shape [L, W]: row i is the mask of the tokens that need at most ``needs[i]`` characters."""
    endings: Trie
    """What crossing tokens spell from the closing quote on."""
    ending: Int32s
    """Shape [N]: for each crossing token, its string in ``endings``."""
    characters: Int32s
    """Shape [N]: for each crossing token, how many whole characters come before the quote."""
    token: Int32s
    """Shape [N]: for each crossing token, its id."""
    texts: tuple[bytes, ...]
    """The strings of ``endings``."""

    def within_mask(self, high: int) -> Mask | None:
        """Tokens that stay within a string of at most ``high`` more characters. Not to change."""
        row = int(np.searchsorted(self.needs, high, side="right")) - 1
        return self.within[row] if row >= 0 else None


def _found(
    texts: Sequence[bytes | None], pattern: re.Pattern[bytes], numbers: Iterable[int] | None = None
) -> list[int]:
    """The numbers of those in which a pattern is found, perhaps only some of ``numbers``."""
    numbers = range(len(texts)) if numbers is None else numbers
    return [number for number in numbers if pattern.search(texts[number] or b"")]


class VocabularyIndex:
    """A vocabulary, indexed for masks. Immutable but for ``heads``, which fill up.

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
        """For each of the ``SPELLINGS`` of a character: what tokens do in strings of it."""
        lengths = [len(text or b"") for text in self.token_bytes]
        self.lengths = np.array(lengths, np.int32)
        """Bytes of each token. Shape [V]."""
        into = _found(self.token_bytes, _INTO_ITEM)
        self.tokens_into_items = np.array(into, np.int32)
        """Tokens in which a container or a comma is followed by something more."""
        out = _found(self.token_bytes, _OUT_INTO_ITEM, into)
        self.tokens_out_into_items = np.array(out, np.int32)
        """Those of them in which there is a quote before."""
        two = _found(self.token_bytes, _INTO_TWO_ITEMS, into)
        self.tokens_into_two_items = np.array(two, np.int32)
        """Those of them in which that is so twice."""
        self.endings_into_items = tuple(
            TextTree.of(each.texts, _found(each.texts, _INTO_ITEM)) for each in self.strings
        )
        """The same of the endings of each of ``strings``, by their indices."""
        self.heads = SharedHeads()
        self._endings: dict[int, Int32s] = {}

    def ending_of_tokens(self, spelling: int) -> Int32s:
        """Shape [V]: for tokens that cross a string's end, their string in ``endings``; else 0."""
        known = self._endings.get(spelling)
        if known is None:
            strings = self.strings[spelling]
            known = np.zeros(self.size, np.int32)
            known[strings.token] = strings.ending
            self._endings[spelling] = known
        return known

    @cached_property
    def unquoted(self) -> Mask:
        """The tokens that have no quote, and so do not end a string."""
        return self._mask_of(lambda text: b'"' not in text)

    @cached_property
    def not_closing(self) -> Mask:
        """The tokens that do not begin with a closing bracket, blanks aside."""
        return self._mask_of(lambda text: text.lstrip(_BLANKS)[:1] not in (b"]", b"}"))

    def _mask_of(self, has: Callable[[bytes], bool]) -> Mask:
        """The mask of the tokens whose bytes are so."""
        mask, texts = self.new_mask(), enumerate(self.token_bytes)
        set_bits(mask, np.array([token for token, text in texts if text and has(text)], np.int32))
        return mask

    def new_mask(self) -> Mask:
        return np.zeros(self.words, np.uint32)

    def _sort_string_tokens(self, automaton: Int32s, accepting: NDArray[np.bool_]) -> StringTokens:
        need = np.full(self.size, -1, np.int32)
        crossing = np.full((self.size, 2), -1, np.int32)
        trie = self.trie
        classify(*trie.arrays, automaton, accepting, START, need, crossing)
        for source, target in trie.duplicates:
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
        return StringTokens(
            needs, within, Trie.build(list(endings)), ending, characters, tokens, tuple(endings)
        )


def _character_automaton(
    spelling: Callable[[ExpressionPool], Expression], missing: ByteSet
) -> tuple[Int32s, NDArray[np.bool_]]:
    """All of the automaton of one string character: transitions [S, 256] by state, accepting."""
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
