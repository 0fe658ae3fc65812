"""Where the tokens of an answer came from, as far as its text has been told.

The engine says of each token all that it spells. What an answer's text leaves out at its end, the
stop string that ended it, is no part of these tokens either, and what may yet become one waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from app.answer.pieces import Delta, End
from app.core.events import Origins, OriginToken, TokenChunk


class OriginReader:
    """Of one choice. Their bytes, joined, are the text of the answer, its marks included."""

    def __init__(self) -> None:
        self._tokens: list[OriginToken] = []
        self._ends: list[int] = []
        """Where each of them ends, in bytes of the answer."""
        self._text = 0
        """Bytes of the answer so far."""
        self._told = 0
        """Tokens that the client knows."""

    def read(self, chunks: Sequence[TokenChunk], delta: Delta) -> None:
        """Add to ``delta``, which is made of ``chunks``, which tokens came or changed."""
        first = self._told
        for chunk in chunks:
            self._text += len(chunk.data)
            if chunk.origins is not None:
                first = min(first, chunk.origins.index)
                self._take(chunk.origins)
        ended = chunks[-1].finish_reason is not None
        told = len(self._tokens) if ended else bisect_right(self._ends, self._text)
        first = min(first, told)
        if first == told == self._told:
            return
        self._told = told
        found = Origins(first, [self._cut(index) for index in range(first, told)])
        pieces = list(delta.pieces)
        pieces.insert(len(pieces) - (bool(pieces) and isinstance(pieces[-1], End)), found)
        delta.pieces = pieces

    def _take(self, origins: Origins) -> None:
        del self._tokens[origins.index :], self._ends[origins.index :]
        end = self._ends[-1] if self._ends else 0
        for token in origins.tokens:
            end += len(token.data)
            self._ends.append(end)
        self._tokens += origins.tokens

    def _cut(self, index: int) -> OriginToken:
        """A token without what is behind the answer's end."""
        token, excess = self._tokens[index], self._ends[index] - self._text
        if excess <= 0:
            return token
        return replace(token, data=token.data[: max(0, len(token.data) - excess)])
