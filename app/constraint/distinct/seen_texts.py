"""The texts seen in one container, and a scan that collects the names of objects.

The scan is independent of the automaton. It reads JSON or another notation of JSON's values.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

from app.constraint.json.text import json_text
from app.constraint.language.nodes import Notation


@dataclass(frozen=True, slots=True)
class SeenTexts:
    """Different texts, sorted. Immutable, as copies of a state share them."""

    texts: tuple[bytes, ...] = ()

    def with_text(self, text: bytes) -> SeenTexts:
        at = bisect_left(self.texts, text)
        return SeenTexts((*self.texts[:at], text, *self.texts[at:]))

    def __contains__(self, text: bytes) -> bool:
        at = bisect_left(self.texts, text)
        return at < len(self.texts) and self.texts[at] == text


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create; never changed
class Frame:
    """The texts seen in a container, and the text of the item or name that is being written.

    ``seen.texts[low:high]`` are those that begin with ``text``.
    """

    seen: SeenTexts
    text: bytes
    low: int
    high: int

    @classmethod
    def between(cls, seen: SeenTexts) -> Frame:
        """The frame before an item."""
        return cls(seen, b"", 0, len(seen.texts))

    @property
    def num_matching(self) -> int:
        """Number of texts seen that begin with the current text."""
        return self.high - self.low

    @property
    def repeats(self) -> bool:
        """Whether the item, if it ends here, was seen before."""
        return self.low < self.high and len(self.seen.texts[self.low]) == len(self.text)

    @property
    def rests(self) -> list[bytes]:
        """The rests of the texts seen that begin with the current text."""
        size = len(self.text)
        return [text[size:] for text in self.seen.texts[self.low : self.high]]

    def after(self, data: bytes) -> Frame:
        """The frame with ``data`` appended to the item."""
        text = self.text + data
        if self.low == self.high:
            return Frame(self.seen, text, 0, 0)
        texts, size = self.seen.texts, len(text)
        low = bisect_left(texts, text, self.low, self.high)
        high = bisect_right(texts, text, low, self.high, key=lambda each: each[:size])
        return Frame(self.seen, text, low, high)

    def ended(self) -> Frame:
        """The frame after the item, with the item among the texts seen."""
        return Frame.between(self.seen.with_text(self.text))

    def next_bytes(self) -> set[int]:
        """The next bytes of the texts seen that begin with the current text."""
        texts, size, at, found = self.seen.texts, len(self.text), self.low, set()
        while at < self.high:
            if len(texts[at]) == size:
                at += 1
                continue
            byte = texts[at][size]
            found.add(byte)
            at = bisect_right(texts, byte, at, self.high, key=lambda each: each[size])
        return found


NOTHING = Frame.between(SeenTexts())
"""The frame before any text."""


_OUTSIDE: Final = 0
"""Outside strings and names: before, in or after a value."""
_NEXT: Final = 1
"""Before a name, or before the end of an empty object."""
_STRING: Final = 2
_NAME: Final = 3

_BACKSLASH, _COMMA, _COLON = ord("\\"), ord(","), ord(":")
_OBJECT = ord("{")
_OPENING = b"{["
_CLOSING = b"}]"


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create; never changed
class Names:
    """State of a scan for names."""

    open: tuple[SeenTexts | None, ...] = ()
    """The names of each open container, from the outermost; None for an array."""
    mode: int = _OUTSIDE
    name: Frame | None = None
    """The name that is being written, its quote included."""
    matched: int = 0
    """Matched bytes of a closing quote; below 0: bytes to skip of an escape or an opening quote."""

    @property
    def repeatable(self) -> Frame | None:
        """The current or next name, if it may repeat one that was seen."""
        if self.mode == _NEXT:
            seen = self.open[-1]
            return Frame.between(seen) if seen is not None and seen.texts else None
        return self.name if self.name is not None and self.name.num_matching else None

    @property
    def is_next(self) -> bool:
        """Whether a name comes next."""
        return self.mode == _NEXT


NO_NAMES = Names()
"""The scan's state before a text."""


class NameScan:
    """Scans texts of one notation for repeated names."""

    def __init__(self, notation: Notation) -> None:
        self.notation = notation
        self._quote = notation.quote
        self._ends = frozenset(notation.quote[:1] + (b"\\" if notation.escaped else b""))
        self.end = _COLON if notation.bare_names else notation.quote[-1]
        """The byte that ends a name."""
        self.any_end = b"~z" + (b":" if notation.bare_names else notation.quote)
        """End of a name that no answer contains."""
        self.any_name = (b"" if notation.bare_names else notation.quote) + self.any_end

    def after(self, names: Names, data: bytes) -> Names | int:
        """The state after ``data``; if a name repeats, the index of its end in ``data``."""
        mode, matched, name = names.mode, names.matched, names.name
        if mode == _STRING and not matched and self._ends.isdisjoint(data):
            return names
        quote, escaped, bare = self._quote, self.notation.escaped, self.notation.bare_names
        containers = names.open
        begun = 0
        for index, byte in enumerate(data):
            if mode >= _STRING:
                if matched < 0:
                    matched += 1
                    continue
                if mode == _NAME and bare:
                    ends = byte == _COLON
                elif byte == _BACKSLASH and escaped:
                    matched = -1
                    continue
                else:
                    matched = matched + 1 if byte == quote[matched] else int(byte == quote[0])
                    ends = matched == len(quote)
                if not ends:
                    continue
                matched = 0
                if mode == _NAME:
                    assert name is not None
                    text = name.text + data[begun : index + (not bare)]
                    text = self._canonical(text)
                    if text in name.seen:
                        return index
                    containers = (*containers[:-1], name.seen.with_text(text))
                    name = None
                mode = _OUTSIDE
            elif byte == quote[0] or (bare and mode == _NEXT and byte not in b"}] \n\r\t"):
                if mode == _NEXT:
                    seen = containers[-1]
                    assert seen is not None
                    mode, name, begun = _NAME, Frame.between(seen), index
                else:
                    mode = _STRING
                matched = 0 if mode == _NAME and bare else 1 - len(quote)
            elif byte == _COMMA:
                if containers and containers[-1] is not None:
                    mode = _NEXT
            elif byte in _OPENING:
                containers = (*containers, SeenTexts() if byte == _OBJECT else None)
                mode = _NEXT if byte == _OBJECT else _OUTSIDE
            elif byte in _CLOSING:
                containers, mode = containers[:-1], _OUTSIDE
        if name is not None:
            name = name.after(data[begun:])
        return Names(containers, mode, name, matched)

    def _canonical(self, text: bytes) -> bytes:
        """The text of a name in its plain spelling."""
        if b"\\" not in text or not self.notation.escaped:
            return text
        try:
            return json_text(json.loads(text))
        except ValueError:  # another notation's escapes
            return text
