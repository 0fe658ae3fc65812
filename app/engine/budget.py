"""The token budget of an answer, and the part reserved until its reasoning ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.constraint import ConstraintState, Mask
from app.core.request import ThinkingBudget


class Budget:
    """The token budget of one answer, and its effects so far."""

    __slots__ = ("closed", "closing", "finishes", "most", "narrowed", "thinking")

    def __init__(self, most: int) -> None:
        self.most = most
        self.finishes = False
        """Whether masks only allow tokens after which the answer can be completed within it."""
        self.thinking: Thinking | None = None
        """None: the whole budget may be spent."""
        self.narrowed = False
        """Whether it has narrowed a mask."""
        self.closing = -1
        """Answer length, in tokens, at which the budget ends a JSON value; -1: it does not."""
        self.closed: bytes | None = None
        """See ``TokenChunk``."""

    @property
    def limit(self) -> int:
        """Tokens that the answer may have now: without those kept for after the reasoning."""
        return self.most if self.thinking is None else self.most - self.thinking.kept

    def left(self, length: int, draft: Sequence[int], spelling: Sequence[bytes]) -> int | None:
        """Tokens left to complete the answer after ``length`` tokens and ``draft``; None if it need
        not be completed."""
        if not self.finishes:
            return None
        left = self.most - length - len(draft)
        if self.thinking is not None:
            left -= self.thinking.after(b"".join([spelling[each] for each in draft]))
        return left

    def note(
        self, state: ConstraintState, mask: Mask, plain: Mask, length: int, ahead: int
    ) -> bool:
        """Record how the budget changed ``plain``, the mask ``ahead`` tokens after the answer.

        Returns whether this is the first mask that it narrowed.
        """
        narrowed = mask is not plain and not np.array_equal(mask, plain)
        at = length + ahead
        if narrowed and state.is_closing(mask, plain):
            # the draft before it may be rejected: keep the earliest length not reached yet
            self.closing = min(at, self.closing) if self.closing >= length else at
        elif self.closing == at:
            self.closing = -1
        first = narrowed and not self.narrowed
        self.narrowed = self.narrowed or narrowed
        return first


class Thinking:
    """Finds the end of the reasoning; tokens may split its marks."""

    def __init__(self, budget: ThinkingBudget, most: int) -> None:
        """``most``: maximum number of tokens to reserve."""
        assert budget.end, "an empty mark"
        assert budget.kept >= 0, "fewer than no tokens are kept"
        self.kept = min(budget.kept, most)
        """Tokens that may not be spent yet; 0 once none need to be kept."""
        self._end = budget.end
        self._begin = budget.begin
        """The mark that begins the reasoning; empty once the answer has begun with it."""
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """The answer grew by ``data``. Costs O(data + marks)."""
        if self.kept:
            self.kept, self._begin, self._tail = self._grown(data)

    def after(self, draft: bytes) -> int:
        """Value of ``kept`` after ``draft``, if that were added. Changes nothing."""
        return self._grown(draft)[0] if self.kept else 0

    def _grown(self, data: bytes) -> tuple[int, bytes, bytes]:
        text, begin = self._tail + data, self._begin
        if not text.startswith(begin[: len(text)]):
            return 0, b"", b""
        if len(text) < len(begin):
            return self.kept, begin, text
        text = text[len(begin) :]
        if self._end in text:
            return 0, b"", b""
        return self.kept, b"", text[max(0, len(text) - len(self._end) + 1) :]
