"""The bytes of an answer -> its text, and back from places in the text to places in bytes."""

from __future__ import annotations

import codecs
from collections import deque


class Decoder:
    """Decodes UTF-8 as it comes; what is none becomes U+FFFD (Unicode, section 3.9)."""

    def __init__(self, *, places: bool = True) -> None:
        """``places``: whether ``bytes_before`` will be asked."""
        self._places = places
        self._undecoded = b""
        """The beginning of a character."""
        self._runs: deque[tuple[str, int]] = deque()
        """Text behind the last place that was asked for, and how many bytes it comes from."""
        self._passed = 0
        """Characters before it."""
        self._passed_bytes = 0

    def decode(self, data: bytes, last: bool = False) -> str:
        """The characters that are whole; the ``last`` data leaves none open."""
        data = self._undecoded + data
        texts = []
        while True:
            try:
                text, used = codecs.utf_8_decode(data, "strict", last)
                break
            except UnicodeDecodeError as error:
                texts += [data[: error.start].decode(), "\ufffd"]
                if self._places:
                    self._runs += [(texts[-2], error.start), ("\ufffd", error.end - error.start)]
                data = data[error.end :]
        self._undecoded = data[used:]
        if self._places:
            self._runs.append((text, used))
        return "".join([*texts, text]) if texts else text

    def bytes_before(self, position: int) -> int:
        """Where a character is in bytes; asked for in ascending order."""
        left = position - self._passed
        while self._runs and left >= len(self._runs[0][0]):
            text, size = self._runs.popleft()
            left -= len(text)
            self._passed_bytes += size
        if left:
            text, size = self._runs[0]
            taken = len(text[:left].encode())
            self._passed_bytes += taken
            self._runs[0] = text[left:], size - taken
        self._passed = position
        return self._passed_bytes
