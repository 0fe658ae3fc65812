"""What an answer may still spend of its tokens, and of these for its reasoning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.constraint import ConstraintState, Mask
from app.core.request import ThinkingBudget


class Budget:
    """The tokens of one answer, and what their end did to it."""

    __slots__ = ("closed", "closing", "finishes", "most", "narrowed", "thinking")

    def __init__(self, most: int) -> None:
        self.most = most
        self.finishes = False
        """Whether it narrows the masks (law 2)."""
        self.thinking: Thinking | None = None
        """None: the whole budget may be spent."""
        self.narrowed = False
        """Whether it has narrowed a mask."""
        self.closing = -1
        """The length, in tokens, at which what is drawn ends a JSON value for its sake."""
        self.closed: bytes | None = None
        """See ``TokenChunk``."""

    @property
    def limit(self) -> int:
        """Tokens the answer may have as things stand: without those kept."""
        return self.most if self.thinking is None else self.most - self.thinking.kept

    def left(self, length: int, draft: Sequence[int], spelling: Sequence[bytes]) -> int | None:
        """Tokens that are left behind ``length`` of the answer and ``draft`` to finish it; None
        where it need not be."""
        if not self.finishes:
            return None
        left = self.most - length - len(draft)
        if self.thinking is not None:
            left -= self.thinking.after(b"".join([spelling[each] for each in draft]))
        return left

    def note(
        self, state: ConstraintState, mask: Mask, plain: Mask, length: int, ahead: int
    ) -> bool:
        """Remember what it did to ``plain``, the mask ``ahead`` tokens behind the answer.

        Whether it has narrowed a mask for the first time.
        """
        narrowed = mask is not plain and not np.array_equal(mask, plain)
        at = length + ahead
        if narrowed and state.is_closing(mask, plain):
            # behind a draft that may not come about: the first place that may yet be drawn
            self.closing = min(at, self.closing) if self.closing >= length else at
        elif self.closing == at:
            self.closing = -1
        first = narrowed and not self.narrowed
        self.narrowed = self.narrowed or narrowed
        return first


class Thinking:
    """Looks for the end of the reasoning; its marks may come in pieces."""

    def __init__(self, budget: ThinkingBudget, most: int) -> None:
        """``most`` are the tokens that can be spared; where more are to be kept, these are."""
        assert budget.end, "an empty mark"
        assert budget.kept >= 0, "fewer than no tokens are kept"
        self.kept = min(budget.kept, most)
        """Tokens that may not be spent yet; 0 once it is plain that none are kept."""
        self._end = budget.end
        self._begin = budget.begin
        """What the answer has to begin with; empty once it did."""
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """The answer grew by ``data``. Costs O(data + marks)."""
        if self.kept:
            self.kept, self._begin, self._tail = self._grown(data)

    def after(self, draft: bytes) -> int:
        """What ``kept`` would be if the answer grew by ``draft``. Changes nothing."""
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
