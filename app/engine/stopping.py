"""Stop strings, found in the bytes of an answer as if these came one by one."""

from __future__ import annotations

from collections.abc import Sequence


class StopFinder:
    """Looks for the first of ``stops`` (none of them empty) to appear in a growing text.

    The first to *end* wins, and among those that end together the longest: what a reader of one
    byte at a time would see. So the outcome does not depend on how the text was split.
    """

    def __init__(self, stops: Sequence[bytes]) -> None:
        assert all(stops), "an empty stop string"
        self._stops = tuple(stops)
        self._reach = max((len(stop) for stop in self._stops), default=1) - 1
        self._tail = b""
        self._length = 0
        self.held_back = 0
        """Bytes at the end of the text that could be the start of a stop string."""

    def feed(self, data: bytes, *, counts: bool = True) -> int | None:
        """Append ``data``; where to cut the text if a stop string has come to its end in it.

        Where ``data`` does not count, one that ends in it is passed over; one may begin there.
        Costs O(len(data) + longest stop) for each stop string; nothing without stop strings.
        """
        if not self._stops:
            return None
        text = self._tail + data
        before = self._length - len(self._tail)
        self._length += len(data)
        found = [
            (start + len(stop), start)
            for stop in self._stops
            if (start := text.find(stop, max(0, len(self._tail) - len(stop) + 1))) >= 0
        ]
        if found and counts:
            return before + min(found)[1]
        self._tail = text[max(0, len(text) - self._reach) :]
        self.held_back = max(_overlap(self._tail, stop) for stop in self._stops)
        return None


def _overlap(text: bytes, stop: bytes) -> int:
    """Length of the longest end of ``text`` that ``stop`` begins with and goes on from."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
