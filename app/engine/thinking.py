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
        """Tokens that may not be spent yet; 0 once it is plain that none are kept."""
        self._mark = reserve.mark
        self._opening = reserve.opening
        """What the answer has to begin with; empty once it did."""
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """The answer grew by ``data``. Costs O(data + mark)."""
        if self.tokens:
            self.tokens, self._opening, self._tail = self._grown(data)

    def after(self, draft: bytes) -> int:
        """What ``tokens`` would be if the answer grew by ``draft``. Changes nothing."""
        return self._grown(draft)[0] if self.tokens else 0

    def _grown(self, data: bytes) -> tuple[int, bytes, bytes]:
        text, opening = self._tail + data, self._opening
        if not text.startswith(opening[: len(text)]):
            return 0, b"", b""
        if len(text) < len(opening):
            return self.tokens, opening, text
        text = text[len(opening) :]
        if self._mark in text:
            return 0, b"", b""
        return self.tokens, b"", text[max(0, len(text) - len(self._mark) + 1) :]
