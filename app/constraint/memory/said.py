"""The texts said in one array, in order, and those of them that an item may yet repeat."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """Different texts, sorted. Adding one makes another object: copies of a state share them."""

    texts: tuple[bytes, ...] = ()
    key: int = 0
    """Stands for the texts, whatever the order they came in."""
    before: int = 0
    """The ``key`` before ``added`` came."""
    added: bytes = b""

    def with_text(self, text: bytes) -> Said:
        at = bisect_left(self.texts, text)
        texts = (*self.texts[:at], text, *self.texts[at:])
        key = (self.key + hash(text)) & ((1 << 64) - 1)
        return Said(texts, key, self.key, text)

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Said:
        return cls(tuple(sorted(texts)))


@dataclass(frozen=True, slots=True)
class Frame:
    """What was said at one level, and the text of the item that is being written.

    ``said.texts[low:high]`` are those that begin with ``text``, of which an item that is far from
    all of them has none.
    """

    said: Said
    text: bytes
    low: int
    high: int

    @classmethod
    def between(cls, said: Said) -> Frame:
        """Before an item."""
        return cls(said, b"", 0, len(said.texts))

    @property
    def near(self) -> bool:
        """Whether the item may yet become one that was said."""
        return self.low < self.high

    @property
    def repeats(self) -> bool:
        """Whether the item, if it ends here, was said before."""
        return self.low < self.high and len(self.said.texts[self.low]) == len(self.text)

    def after(self, data: bytes) -> Frame:
        """With ``data`` at the end of the item."""
        text = self.text + data
        if self.low == self.high:
            return Frame(self.said, text, 0, 0)
        texts, size = self.said.texts, len(text)
        low = bisect_left(texts, text, self.low, self.high)
        high = bisect_right(texts, text, low, self.high, key=lambda each: each[:size])
        return Frame(self.said, text, low, high)

    def ended(self) -> Frame:
        """Behind the item."""
        return Frame.between(self.said.with_text(self.text))

    def next_bytes(self) -> set[int]:
        """The bytes that one of the texts goes on with."""
        texts, size, at, found = self.said.texts, len(self.text), self.low, set()
        while at < self.high:
            if len(texts[at]) == size:
                at += 1
                continue
            byte = texts[at][size]
            found.add(byte)
            at = bisect_right(texts, byte, at, self.high, key=lambda each: each[size])
        return found


NOTHING = Frame.between(Said())
"""At a level where nothing was said."""
