"""The answer that a client predicts, aligned with the growing answer."""

from __future__ import annotations

from app.engine.draft_statistics import Rate

LONGEST_ENDING = 32
"""Bytes of the answer's end by which its place is found."""

_SHORTEST_ENDING = 4
_LONGEST_REST = 160
_BEHIND, _AHEAD = 1 << 10, 1 << 16
"""Bytes before and after the last match that are searched for every draft."""


class Prediction:
    """A predicted text, the place of the answer in it, and its success rate."""

    def __init__(self, text: bytes) -> None:
        self.rate = Rate(0.9)
        """Recent rate of correct guesses."""
        self.accepted = 0
        """Drafted tokens that were drawn."""
        self.drafted = 0
        """Drafted tokens that were verified."""
        self.found = True
        """Whether the answer was last found in the text."""
        self._text = text
        self._at = 0

    def record(self, correct: bool) -> None:
        """Count a token that was drafted from the text and verified."""
        self.rate.record(correct)
        self.accepted += correct

    def rest(self, ending: bytes, *, begins: bool) -> bytes:
        """The predicted text after ``ending``, the end of the answer.

        ``begins``: that is the whole answer. b"" if it is not found near the last place. Costs
        O(1): a bounded part of the text is looked through.
        """
        if begins and self._text.startswith(ending):
            return self._from(len(ending))
        size = min(len(ending), LONGEST_ENDING)
        while size >= _SHORTEST_ENDING:
            needle = ending[-size:]
            found = self._text.find(needle, max(0, self._at - size), self._at + _AHEAD)
            if found < 0:
                found = self._text.find(needle, max(0, self._at - _BEHIND), self._at)
            if found >= 0:
                return self._from(found + size)
            size //= 2
        self.found = False
        return b""

    def _from(self, at: int) -> bytes:
        self._at = at
        self.found = at < len(self._text)
        return self._text[at : at + _LONGEST_REST]
