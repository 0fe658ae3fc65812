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
        self._stops = [_Stop(stop) for stop in stops]
        self.length = 0
        """Bytes of the text."""
        self.found = b""
        """The stop string that ``feed`` found."""
        self.held_back = 0
        """Bytes at the end of the text that could be the start of a stop string."""

    def feed(self, data: bytes, *, counts: bool = True) -> int | None:
        """Append ``data``; where to cut the text if a stop string has come to its end in it.

        Where ``data`` does not count, one that ends in it is passed over; one may begin there.
        Costs O(len(data)) for each stop string; nothing without stop strings.
        """
        if not self._stops:
            return None
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
    """One stop string and how much of it the text's end is (Knuth, Morris and Pratt 1977).

    The table of borders is made as far as text has matched, so a stop costs nothing until it
    nearly comes about.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._borders = [0]
        """Of the first n+1 bytes: the length of the longest end that is also a beginning."""
        self.matched = 0

    def read(self, data: bytes) -> int | None:
        """The end in ``data`` of the first occurrence that ends there; reads on to data's end."""
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
