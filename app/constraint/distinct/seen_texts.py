"""The texts said in one container, in order, and those of them that the next may yet repeat."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeenTexts:
    """Different texts, sorted. Adding one makes another object: copies of a state share them."""

    texts: tuple[bytes, ...] = ()

    def with_text(self, text: bytes) -> SeenTexts:
        at = bisect_left(self.texts, text)
        return SeenTexts((*self.texts[:at], text, *self.texts[at:]))

    def __contains__(self, text: bytes) -> bool:
        at = bisect_left(self.texts, text)
        return at < len(self.texts) and self.texts[at] == text


@dataclass(slots=True, unsafe_hash=True)  # not frozen: each byte may make one; nothing changes it
class Frame:
    """What was said in a container, and the text that is being written: of an item, or a name.

    ``said.texts[low:high]`` are those that begin with ``text``, of which one that is far from
    all of them has none.
    """

    said: SeenTexts
    text: bytes
    low: int
    high: int

    @classmethod
    def between(cls, said: SeenTexts) -> Frame:
        """Before an item."""
        return cls(said, b"", 0, len(said.texts))

    @property
    def near(self) -> int:
        """How many of the texts that were said this one may yet become."""
        return self.high - self.low

    @property
    def repeats(self) -> bool:
        """Whether the item, if it ends here, was said before."""
        return self.low < self.high and len(self.said.texts[self.low]) == len(self.text)

    @property
    def rests(self) -> list[bytes]:
        """What the texts that it may yet become go on with."""
        size = len(self.text)
        return [text[size:] for text in self.said.texts[self.low : self.high]]

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


NOTHING = Frame.between(SeenTexts())
"""Where nothing was said."""
