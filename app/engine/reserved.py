"""Tokens of a budget that are kept for what follows a mark in the answer."""

from __future__ import annotations

from app.core.request import Reserve


class Reserved:
    """A reserve until its mark appears. The mark may come in pieces."""

    def __init__(self, reserve: Reserve, most: int) -> None:
        """``most`` are the tokens that can be spared; a larger reserve shrinks to them."""
        assert reserve.mark, "an empty mark"
        assert reserve.tokens >= 0, "a reserve below 0"
        self.tokens = min(reserve.tokens, most)
        """Tokens that may not be spent yet; 0 once the mark has appeared."""
        self._mark = reserve.mark
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """The answer grew by ``data``. Costs O(data + mark)."""
        if self.tokens:
            text = self._tail + data
            self._tail = text[max(0, len(text) - len(self._mark) + 1) :]
            self.tokens = 0 if self._mark in text else self.tokens

    def after(self, draft: bytes) -> int:
        """What ``tokens`` would be if the answer grew by ``draft``. Changes nothing."""
        return 0 if self._mark in self._tail + draft else self.tokens
