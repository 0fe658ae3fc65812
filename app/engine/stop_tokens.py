"""The tokens that end an answer, after a minimum of tokens, and their effect on its masks.

A constraint's masks only know the vocabulary's ends of sequence. A request may delay these
(``min_tokens``, ``ignore_eos``) and add others (``stop_token_ids``); its masks are then edited,
depending on whether the answer is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from app.core.constraint import Mask, Vocabulary, full_mask
from app.core.errors import InvalidRequest
from app.core.lru import Lru
from app.core.request import EngineRequest

_MOST_BYTES = 32 << 20
_MOST_MASKS = 1 << 14
"""Limits of the cache of ``EditedMasks``."""

_MOST_STOPS = 1024
"""Maximum stop tokens of a request: more would make its masks slow for others."""

_NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to a mask; at least one token stays allowed if one was."""

    allowed: frozenset[int]
    """Ids to allow in addition."""
    barred: tuple[frozenset[int], ...]
    """Sets of ids: the first that leaves a token is removed, or none if all tokens would go."""


class StopTokens:
    """The tokens that end the answer of one request. Immutable.

    Among the first ``min_tokens`` tokens no end is drawn if anything else is allowed, and a stop
    token that is drawn all the same does not end the answer.
    """

    def __init__(self, request: EngineRequest, vocabulary: Vocabulary) -> None:
        eos, spelling = vocabulary.eos_ids, vocabulary.token_bytes
        self._stops = frozenset(request.options.stop_token_ids)
        self._min_tokens = request.options.min_tokens
        # In a constraint, a stop token without bytes can only end a complete answer.
        silent = _NOTHING
        if request.constraint is not None:
            silent = frozenset([token for token in self._stops if not spelling[token]])
        self._ends = eos | silent
        unwanted = (eos,) if request.options.ignore_eos else ()
        self._late = _useful(Edit(silent - eos, unwanted))
        self._early = _useful(Edit(silent - eos, (self._ends | self._stops, self._ends)))
        self._early_inside = _useful(Edit(_NOTHING, (self._stops - self._ends,)))

    @staticmethod
    def of(request: EngineRequest, vocabulary: Vocabulary) -> StopTokens | None:
        """The stop tokens of ``request``; None where only the vocabulary's ends of sequence end it.

        Raises InvalidRequest where ``min_tokens`` is not between 0 and ``max_tokens``, for more
        stop tokens than 1024, and for one that the vocabulary does not have.
        """
        options = request.options
        if not 0 <= options.min_tokens <= request.max_tokens:
            raise InvalidRequest(
                f"min_tokens is {options.min_tokens}, but must be between 0 and max_tokens "
                f"({request.max_tokens})",
                param="min_tokens",
            )
        if len(options.stop_token_ids) > _MOST_STOPS:
            raise InvalidRequest(
                f"stop_token_ids has {len(options.stop_token_ids)} tokens and the limit is "
                f"{_MOST_STOPS}",
                param="stop_token_ids",
            )
        for token in options.stop_token_ids:
            if not 0 <= token < vocabulary.size:
                raise InvalidRequest(
                    f"stop_token_ids has the token id {token}; the vocabulary has ids 0 to "
                    f"{vocabulary.size - 1}",
                    param="stop_token_ids",
                )
        if options.min_tokens or options.ignore_eos or options.stop_token_ids:
            return StopTokens(request, vocabulary)
        return None

    def ends(self, token: int, before: int) -> bool:
        """Whether ``token`` ends the answer after ``before`` others. Costs a lookup."""
        return token in self._ends or (before >= self._min_tokens and token in self._stops)

    def edit(self, before: int, *, complete: bool) -> Edit | None:
        """How to change the mask of the draw after ``before`` tokens; None leaves it as it is.

        ``complete``: the answer may end there. Costs nothing.
        """
        if before >= self._min_tokens:
            return self._late if complete else None
        return self._early if complete else self._early_inside


class EditedMasks:
    """Masks after an edit. One thread at a time.

    Edits of read-only masks are cached, since the runner recognises a mask by its identity. Masks
    narrowed by a budget are new each time, edited or not.
    """

    def __init__(self, vocabulary_size: int, max_bytes: int = _MOST_BYTES) -> None:
        self._words = -(-vocabulary_size // 32)
        self._everything = full_mask(vocabulary_size)
        # Up to two masks of four bytes a word: the edited one, and the one it came from.
        self._kept: Lru[tuple[int, Edit], tuple[Mask | None, Mask]] = Lru(
            max_bytes, lambda _: 8 * self._words, most=_MOST_MASKS
        )
        """By the id of the mask, which is held with its edit so that no other gets that id."""

    def get(self, mask: Mask | None, edit: Edit) -> Mask:
        """``mask`` (None: every token) after ``edit``; itself where that changes nothing.

        Costs a lookup for a mask that is kept, else O(vocabulary / 32 + ids).
        """
        key = (id(mask), edit)
        kept = self._kept.get(key)
        if kept is not None:
            return kept[1]
        edited = self._edit(mask, edit)
        if mask is None or (mask.flags.owndata and not mask.flags.writeable):
            edited.flags.writeable = False
            self._kept.keep(key, (mask, edited))
        return edited

    def _edit(self, mask: Mask | None, edit: Edit) -> Mask:
        edited = (self._everything if mask is None else mask) | self._packed(edit.allowed)
        for ids in edit.barred:
            left = edited & ~self._packed(ids)
            if left.any():
                edited = left
                break
        return mask if mask is not None and np.array_equal(mask, edited) else edited

    def _packed(self, ids: Collection[int]) -> Mask:
        packed = np.zeros(self._words, np.uint32)
        at = np.fromiter(ids, np.uint32, len(ids))
        np.bitwise_or.at(packed, at >> 5, np.uint32(1) << (at & 31))
        return packed


def _useful(edit: Edit) -> Edit | None:
    return edit if edit.allowed or any(edit.barred) else None


class StopFinder:
    """Looks for the first of ``stops`` (one or more, none empty) to appear in a growing text.

    The first to *end* wins, and the longest of those that end together, as when reading byte by
    byte. So the result does not depend on how the text is split.
    """

    def __init__(self, stops: Sequence[bytes]) -> None:
        assert stops, "nothing to look for"
        assert all(stops), "an empty stop string"
        self._stops = [_Stop(stop) for stop in stops]
        self.length = 0
        """Bytes of the text."""
        self.found = b""
        """The stop string that ``feed`` found."""
        self.held_back = 0
        """Bytes at the end of the text that could be the start of a stop string."""

    def feed(self, data: bytes, *, counts: bool = True) -> int | None:
        """Append ``data``; returns where to cut the text if a stop string ends in it.

        ``counts`` False: stop strings that end in ``data`` are ignored; they may begin there.
        Costs O(len(data)) for each stop string.
        """
        found = [
            (self.length + end, self.length + end - len(stop.text), stop.text)
            for stop in self._stops
            if (end := stop.read(data)) is not None
        ]
        self.length += len(data)
        if found and counts:
            _, cut, self.found = min(found)
            return cut
        self.held_back = max(stop.matched for stop in self._stops)
        return None


class _Stop:
    """One stop string, matched against the text's end (Knuth, Morris and Pratt 1977).

    The failure table is computed as far as text has matched, so a stop costs nothing until it
    nearly matches.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._borders = [0]
        """For the first n+1 bytes, the length of the longest proper suffix that is a prefix."""
        self.matched = 0

    def read(self, data: bytes) -> int | None:
        """End of the first occurrence that ends in ``data``; advances to the end of ``data``."""
        text, matched, first = self.text, self.matched, None
        position = 0
        while position < len(data):
            if matched == 0:
                position = data.find(text[0], position)
                if position < 0:
                    break
            byte = data[position]
            while matched and text[matched] != byte:
                matched = self._border(matched)
            if text[matched] == byte:
                matched += 1
            position += 1
            if matched == len(text):
                first = position if first is None else first
                matched = self._border(matched)
        self.matched = matched
        return first

    def _border(self, length: int) -> int:
        text, borders = self.text, self._borders
        while len(borders) < length:
            byte, border = text[len(borders)], borders[-1]
            while border and text[border] != byte:
                border = borders[border - 1]
            borders.append(border + (text[border] == byte))
        return borders[length - 1]
