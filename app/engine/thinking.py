"""A thinking budget while the answer comes: tokens that are kept for what follows the reasoning."""

from __future__ import annotations

from app.core.request import ThinkingBudget


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
