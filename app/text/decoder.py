"""Bytes of an answer to text, as they come."""

from __future__ import annotations

import codecs


class IncrementalDecoder:
    """Turns byte chunks into text, holding back a UTF-8 character until it is whole.

    Bytes that are no UTF-8 become U+FFFD, as in the Unicode standard's section 3.9.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, data: bytes) -> str:
        """The text that ``data`` completes; "" if it only begins a character."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What was held back, as replacement characters; call once, at the end."""
        return self._decoder.decode(b"", final=True)
