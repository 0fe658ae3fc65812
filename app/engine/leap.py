"""The leap: text that the constraint forces is appended, split as the tokenizer would split it.

    answer so far       ... | t1 | t2 | t3 |        the last tokens are the window
    forced bytes                           : f f f f f f
    tokenized again         | t1 | n2      :  | n3 | n4 |
                            kept   t2, t3 give way     ^ held back: a longer token may go on here

Tokens before the first change are kept with their keys and values. Tokens that a longer vocabulary
token could merge with what follows are not confirmed; they are only drafted, and the model decides.
Forced tokens whose split crosses such a branch would otherwise be ones the model never saw in
training (the problem of token healing).
"""

from __future__ import annotations

import re
import string
from codecs import utf_8_decode
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import eq

from app.core.constraint import ConstraintState, Vocabulary
from app.core.events import AnswerToken
from app.core.lru import Lru
from app.core.text import Tokenizer
from app.engine.draft import Draft, Source

WINDOW_TOKENS = 8
"""Tokens before the forced text that are tokenized with it; more if all of them change."""

_MARKS = b'",:]}'
_WORD = (string.ascii_letters + string.digits).encode()
_WORD_AND_MARK = re.compile(rb'([0-9A-Za-z])(?=([",:\]}]))')
"""Tokenizers split between a word byte and a mark if no token contains this pair: a window may
start at such a seam."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change to the end of an answer, for all answers with this end. The text only grows."""

    dropped: int
    """Number of tokens at the answer's end that are replaced."""
    tokens: tuple[int, ...]
    """The tokens in their place; empty if all of the forced text is held back."""
    added: tuple[bytes, ...]
    """Bytes that each of ``tokens`` adds to the answer; b"" if it lies inside the old text."""
    text: bytes
    """All of ``added``."""
    answer_tokens: tuple[AnswerToken, ...]
    """Those of ``tokens`` that add bytes, as tokens of the answer."""
    held_back: Draft
    """Tokens of the forced text that were held back."""

    @staticmethod
    def of(
        dropped: int, tokens: tuple[int, ...], added: tuple[bytes, ...], draft: tuple[int, ...]
    ) -> Change:
        pairs = zip(tokens, added, strict=True)
        new = tuple([AnswerToken(token, data, "leapt") for token, data in pairs if data])
        held_back = Draft(draft, (Source.HELD_BACK,) * len(draft))
        return Change(dropped, tokens, added, b"".join(added), new, held_back)


@dataclass(frozen=True, slots=True)
class _Split:
    """The answer's end, tokenized again together with the forced text."""

    first: int
    """Where the window starts in the answer."""
    kept: int
    """Tokens at the window's start that did not change."""
    old: int
    """Tokens the window had."""
    tokens: list[int]
    """Tokens of the window's text and the forced text."""
    pieces: list[bytes]
    """Bytes of each token."""
    inside: int
    """Bytes of the window's text, which the answer already has."""


class Leaper:
    """Proposes leaps. Stateless between calls; costs one short tokenization each, or a look-up."""

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.spelling = [data or b"" for data in vocabulary.token_bytes]
        """The bytes of every token id; none of special tokens."""
        self._longest = max(1, *map(len, self.spelling))
        self._seams = _seams(self.spelling)
        # By token: its first byte, and its last.
        self._begins = bytes([data[0] if data else 0 for data in self.spelling])
        self._ends = bytes([data[-1] if data else 0 for data in self.spelling])

    def propose(
        self,
        answer: Sequence[int],
        start: int,
        state: ConstraintState,
        limit: int,
        *,
        finish: bool,
        known: Lru[Hashable, Change] | None = None,
    ) -> tuple[Change, ConstraintState] | None:
        """The leap from ``state``, where ``answer[start:]`` are the answer's tokens, and the state
        after it.

        ``limit`` is the most tokens the answer may have. With ``finish`` a leap is taken only if
        the answer can be finished within the limit after it. None if nothing is forced, if the
        tokenizer would change the text, or near the limit; decoding token by token is still
        correct then. ``known`` is the constraint's cache of changes, which is filled; no other
        argument is changed.
        """
        forced = state.forced()
        if not forced or len(forced) > (limit + 1) * self._longest:
            return None  # nothing to add, or more than fits however it is split
        change = self.change(answer, start, state, known)
        if change is None:
            return None
        after = state
        if change.text:
            after = state.copy()
            after.accept_bytes(change.text)
        left = limit - (len(answer) - start - change.dropped + len(change.tokens))
        return None if left < 0 or (finish and not after.fits(left)) else (change, after)

    def change(
        self,
        answer: Sequence[int],
        start: int,
        state: ConstraintState,
        known: Lru[Hashable, Change] | None = None,
    ) -> Change | None:
        """The change that ``propose`` would make with no limit. Something has to be forced."""
        forced = state.forced()
        first = self._seam(answer, start, forced[0])
        settled = first is not None
        if first is None:
            first = len(answer) - WINDOW_TOKENS
        key = (state.state_id, settled, *answer[first:])
        change = known.get(key) if known is not None else None
        if change is None:
            split = self._split(answer, start, first, settled, forced)
            if split is None:
                return None
            change = self._changed(split, state)
            if known is not None and split.first == first:
                known.keep(key, change)
        return change

    def _seam(self, answer: Sequence[int], start: int, following: int) -> int | None:
        """The last index within the window at which a token surely begins; None: there is none.

        The answer's start is such an index. ``following`` is the byte behind the answer's end.
        """
        begins, ends, seams = self._begins, self._ends, self._seams
        size = len(answer)
        first = size - WINDOW_TOKENS
        for index in range(size, max(first - 1, start), -1):
            token = answer[index - 1]
            if (ends[token], following) in seams:
                return index
            following = begins[token]
        return start if first <= start else None

    def _changed(self, split: _Split, state: ConstraintState) -> Change:
        """The change of a split: its stable tokens are confirmed, the others drafted."""
        starts = [*accumulate(map(len, split.pieces), initial=0)]
        after = state.copy()
        after.accept_bytes(state.forced()[: starts[-1] - split.inside])
        stable = self._stable(split, starts, after)
        if starts[stable] < split.inside:
            return Change.of(0, (), (), ())
        draft = tuple(split.tokens[stable:])
        if starts[stable] == split.inside:
            return Change.of(0, (), (), draft)
        new = range(split.kept, stable)
        added = tuple([split.pieces[i][max(0, split.inside - starts[i]) :] for i in new])
        return Change.of(
            split.old - split.kept, tuple(split.tokens[split.kept : stable]), added, draft
        )

    def _split(
        self, answer: Sequence[int], start: int, first: int, settled: bool, forced: bytes
    ) -> _Split | None:
        """Tokenize the answer's end again, in a window wide enough for its start to line up.

        The window begins at ``first``, or before it where that is not ``settled``: no seam.
        None where the forced text completes no character, or where the text is not UTF-8, or where
        the tokenizer would change it (it normalises, or finds a special token).
        """
        width = WINDOW_TOKENS
        while True:
            while not settled and start < first < len(answer):  # to the start of a character
                piece = self.spelling[answer[first]]
                if not piece or piece[0] & 0xC0 != 0x80:
                    break
                first -= 1
            window = answer[first:]
            text = b"".join([self.spelling[token] for token in window])
            whole = text + forced
            whole = whole[: utf_8_decode(whole, "replace")[1]]  # up to a character that is cut off
            tokens = self.encode(whole) if len(whole) > len(text) else None
            if tokens is None:
                return None
            pieces = [self.spelling[token] for token in tokens]
            if b"".join(pieces) != whole:
                return None
            kept = [*map(eq, window, tokens), False].index(False)
            if kept or settled or first == start:
                return _Split(first, kept, len(window), tokens, pieces, len(text))
            width *= 4
            first = max(start, len(answer) - width)

    def encode(self, data: bytes) -> list[int] | None:
        """Tokens of ``data``; None where it is not UTF-8."""
        try:
            return self._tokenizer.encode(data.decode())
        except UnicodeDecodeError:
            return None

    def _stable(self, split: _Split, starts: Sequence[int], after: ConstraintState) -> int:
        """Number of first tokens of the split that no longer token can merge with what follows.

        Text before the forced text is decided. A token that spans both replaces one that the model
        chose; it is stable only if no longer token begins inside its forced part either. After
        ``"`` with ``}`` forced, ``"}`` may be wrong if ``]`` follows: ``"`` and ``}]``.
        """
        if not after.is_final:
            data = b"".join(split.pieces)
            reach = max(split.inside, len(data) - self._longest + 1)
            for index, (start, end) in enumerate(pairwise(starts)):
                begins = (start,) if start >= split.inside else range(split.inside, end)
                if any(each >= reach and after.can_extend(data[each:]) for each in begins):
                    return index
        return len(split.tokens)


def _seams(spelling: Iterable[bytes]) -> frozenset[tuple[int, int]]:
    """Pairs of a word's byte and a mark that no token contains."""
    found = _WORD_AND_MARK.findall(b"\0".join(spelling))
    pairs = {(word, mark) for word in _WORD for mark in _MARKS}
    return frozenset(pairs - {(word[0], mark[0]) for word, mark in found})
