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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.core.constraint import ConstraintState, Vocabulary

WINDOW_TOKENS = 8
"""Tokens before forced text that are tokenized with it, more where that changes all of them."""


class Tokenizer(Protocol):
    """Splits text as the model's own tokenizer does."""

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``, with no special tokens added."""


@dataclass(frozen=True, slots=True)
class Leap:
    """A change to the end of an answer. Its text only grows."""

    dropped: int
    """Tokens at the answer's end that give way."""
    tokens: tuple[int, ...]
    """Tokens that take their place; empty when all of the forced text is held back."""
    added: tuple[bytes, ...]
    """For each of ``tokens`` the bytes it adds to the answer, b"" for one inside the old text."""
    state: ConstraintState
    """The state after them."""
    draft: tuple[int, ...]
    """Tokens of the forced text that were held back."""


@dataclass(frozen=True, slots=True)
class _Split:
    """The answer's end, tokenized again together with the forced text."""

    kept: int
    """Tokens at the window's start that did not change."""
    old: int
    """Tokens the window had."""
    tokens: list[int]
    """Tokens of the window's text and the forced text."""
    pieces: list[bytes]
    """What each of them spells."""
    inside: int
    """Bytes of the window's text, which the answer already has."""


class Leaper:
    """Proposes leaps. Stateless between calls; costs one short tokenization each."""

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._spelling = [data or b"" for data in vocabulary.token_bytes]
        self._longest = max((len(data) for data in vocabulary.token_bytes if data), default=1)

    def propose(
        self, answer: Sequence[int], start: int, state: ConstraintState, limit: int, *, finish: bool
    ) -> Leap | None:
        """The leap from ``state``, where ``answer[start:]`` are the answer's tokens.

        ``limit`` is the most tokens the answer may have. With ``finish`` a leap is taken only if
        the answer can be finished within the limit after it. None where nothing is forced, where
        the tokenizer would change the text, or where the limit is near; decoding token by token is
        then still right. Changes none of its arguments.
        """
        forced = state.forced()
        if not forced or len(forced) > (limit + 1) * self._longest:
            return None  # nothing to add, or more than fits however it is split
        split = self._split(answer, start, forced)
        if split is None:
            return None
        covered = sum(map(len, split.pieces)) - split.inside
        after = state.copy()
        after.accept_bytes(forced[:covered])
        stable = self._stable(split, after)
        leap = self._cut(split, stable, state, after, forced[:covered])
        length = len(answer) - start - leap.dropped + len(leap.tokens)
        left = limit - length
        if left < 0 or (finish and leap.state.shortest_tokens(left) > left):
            return None
        return leap

    def _split(self, answer: Sequence[int], start: int, forced: bytes) -> _Split | None:
        """Tokenize the answer's end again, in a window wide enough for its start to line up.

        None where the forced text completes no character, or where the text is not UTF-8, or where
        the tokenizer would change it (it normalises, or finds a special token).
        """
        width = WINDOW_TOKENS
        while True:
            first = self._character_start(answer, start, max(start, len(answer) - width))
            window = answer[first:]
            text = b"".join([self._spelling[token] for token in window])
            whole = _whole_characters(text + forced)
            tokens = self._encode(whole) if len(whole) > len(text) else None
            if tokens is None:
                return None
            pieces = [self._spelling[token] for token in tokens]
            if b"".join(pieces) != whole:
                return None
            kept = _common_prefix(window, tokens)
            if kept or first == start:
                return _Split(kept, len(window), tokens, pieces, len(text))
            width *= 4

    def _character_start(self, answer: Sequence[int], start: int, first: int) -> int:
        """The last token not after ``first`` that does not begin inside a UTF-8 character."""
        while start < first < len(answer):
            piece = self._spelling[answer[first]]
            if not piece or piece[0] & 0xC0 != 0x80:
                break
            first -= 1
        return first

    def _encode(self, data: bytes) -> list[int] | None:
        try:
            return self._tokenizer.encode(data.decode())
        except UnicodeDecodeError:
            return None

    def _stable(self, split: _Split, after: ConstraintState) -> int:
        """How many tokens of the split no longer token could merge with what follows.

        Only tokens that begin in the forced text can be held back: the text before is decided.
        """
        if after.is_final:
            return len(split.tokens)
        data = b"".join(split.pieces)
        reach = max(split.inside, len(data) - self._longest + 1)
        starts: list[tuple[int, int]] = []
        index, position = len(split.tokens), len(data)
        while index > 0:
            position -= len(split.pieces[index - 1])
            if position < reach:
                break
            index -= 1
            starts.append((index, position))
        for index, position in reversed(starts):
            if after.can_extend(data[position:]):
                return index
        return len(split.tokens)

    def _cut(
        self,
        split: _Split,
        stable: int,
        state: ConstraintState,
        after: ConstraintState,
        forced: bytes,
    ) -> Leap:
        """The leap that confirms the first ``stable`` tokens of the split and drafts the rest."""
        draft = tuple(split.tokens[stable:])
        end = sum(map(len, split.pieces[:stable])) - split.inside
        if end <= 0:
            return Leap(0, (), (), state, draft)
        if draft:
            after = state.copy()
            after.accept_bytes(forced[:end])
        tokens = tuple(split.tokens[split.kept : stable])
        spelled = split.pieces[split.kept : stable]
        added = _without_front(spelled, sum(map(len, spelled)) - end)
        return Leap(split.old - split.kept, tokens, added, after, draft)


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def _without_front(pieces: Sequence[bytes], count: int) -> tuple[bytes, ...]:
    """``pieces`` without their first ``count`` bytes; as many pieces, some perhaps empty."""
    rest: list[bytes] = []
    for piece in pieces:
        rest.append(piece[count:] if count > 0 else piece)
        count -= len(piece)
    return tuple(rest)


def _whole_characters(data: bytes) -> bytes:
    """``data`` without a UTF-8 character that is cut off at its end (RFC 3629)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if length > back else data
    return data
