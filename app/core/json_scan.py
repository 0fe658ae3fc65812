"""A scan of JSON text byte by byte: it knows what may come next, but not the values.

The text must be valid JSON (RFC 8259) or a prefix of it; otherwise the result is undefined.
"""

from __future__ import annotations

import re
from enum import Enum, auto

BLANKS = b" \t\r\n"
NUMBER_BYTES = b"+-.0123456789Ee"

_WORDS = {ord("t"): 3, ord("f"): 4, ord("n"): 3}
"""Bytes after the first one of true, false and null."""
_QUOTE, _COMMA, _BACKSLASH = ord('"'), ord(","), ord("\\")
_OPENING, _CLOSING = b"{[", b"}]"
_MARK = re.compile(r'["\\]')


class Place(Enum):
    """What stands next."""

    VALUE = auto()
    FIRST_ITEM = auto()
    """An array's first item, or its end."""
    NEXT_ITEM = auto()
    """A comma and another item, or the array's end."""
    FIRST_KEY = auto()
    NEXT_KEY = auto()
    """A comma and another key, or the object's end."""
    KEY = auto()
    """A key, behind a comma."""
    COLON = auto()
    STRING = auto()
    """The rest of a string."""
    NUMBER = auto()
    """The rest of a number, or what follows it."""
    WORD = auto()
    """The rest of true, false or null."""
    END = auto()
    """Nothing: the value is whole."""
    TEXT = auto()
    """A text that is no JSON, up to the end of the answer: never met in a scan."""


CHOICES = frozenset(
    {Place.VALUE, Place.FIRST_ITEM, Place.NEXT_ITEM, Place.FIRST_KEY, Place.NEXT_KEY}
)
"""Places where it is decided how the text goes on."""


_BEGINS = (Place.VALUE, Place.FIRST_ITEM, Place.FIRST_KEY, Place.KEY)


class JsonScan:
    """The position in a JSON text. ``push`` advances by a byte, in under a microsecond."""

    __slots__ = ("_escaped", "_is_key", "_left", "_open", "place")

    def __init__(self) -> None:
        self.place = Place.VALUE
        self._open = bytearray()
        """The brackets that are open."""
        self._is_key = False
        self._escaped = False
        self._left = 0
        """Bytes left of the current word."""

    @property
    def in_value(self) -> bool:
        """Whether the current string is a value, not a key."""
        return self.place is Place.STRING and not self._is_key

    def end_number(self) -> None:
        """Note that the current number has no more digits."""
        assert self.place is Place.NUMBER
        self.place = self.after_value()

    def begin_item(self) -> None:
        """Note that the current array has an item."""
        assert self.place is Place.FIRST_ITEM
        self.place = Place.VALUE

    def push(self, byte: int) -> None:
        place = self.place
        if place is Place.STRING:
            if self._escaped:
                self._escaped = False
            elif byte == _BACKSLASH:
                self._escaped = True
            elif byte == _QUOTE:
                self.place = Place.COLON if self._is_key else self.after_value()
            return
        if place is Place.WORD:
            self._left -= 1
            if not self._left:
                self.place = self.after_value()
            return
        if place is Place.NUMBER:
            if byte in NUMBER_BYTES:
                return
            self.end_number()
        if byte in BLANKS:
            return
        if byte == _COMMA:
            self.place = Place.KEY if self._in_object else Place.VALUE
        elif byte in _CLOSING:
            del self._open[-1:]
            self.place = self.after_value()
        elif byte == _QUOTE:
            self._is_key = place in (Place.FIRST_KEY, Place.KEY)
            self.place = Place.STRING
        elif place is Place.COLON:
            self.place = Place.VALUE
        elif byte in _OPENING:
            self._open.append(byte)
            self.place = Place.FIRST_KEY if self._in_object else Place.FIRST_ITEM
        elif byte in _WORDS:
            self._left = _WORDS[byte]
            self.place = Place.WORD
        else:
            self.place = Place.NUMBER

    def end_in(self, text: str) -> int | None:
        """Index after the end of the value, if that is in the next ``text``."""
        at = 0
        while at < len(text):
            if self.place is Place.STRING and not self._escaped:
                mark = _MARK.search(text, at)
                if mark is None:
                    return None
                at = mark.start()
            self.push(min(ord(text[at]), 0xFF))  # beyond ASCII all characters are alike
            at += 1
            if self.place is Place.END:
                return at
        return None

    @property
    def _in_object(self) -> bool:
        return bool(self._open) and self._open[-1] == _OPENING[0]

    def after_value(self) -> Place:
        """The place after the current value, if that has ended."""
        if not self._open:
            return Place.END
        return Place.NEXT_KEY if self._in_object else Place.NEXT_ITEM


class JsonWalk:
    """Goes through a JSON text; subclasses override what is called at the borders of values."""

    def __init__(self) -> None:
        self._scan = JsonScan()
        self._began = 0
        """Offset of the current value or key, in bytes of the text."""

    def _push(self, at: int, byte: int) -> None:
        """``byte`` is that at ``at``."""
        scan, before = self._scan, self._scan.place
        if before is Place.NUMBER and byte not in NUMBER_BYTES:
            self._leaf(at)
            scan.end_number()
            before = scan.place
            self._decided(before, at)
        scan.push(byte)
        after = scan.place
        if before is Place.STRING or before is Place.WORD:
            if after is Place.COLON:
                self._key(at + 1)
            elif after is not before:
                self._leaf(at + 1)
        elif byte in BLANKS:
            return
        elif byte in _CLOSING:
            self._close(at + 1)
        elif before in _BEGINS:
            self._began = at
            if byte in _OPENING:
                self._begin(byte == _OPENING[0])
        if after is not before or byte in _OPENING + _CLOSING:
            self._decided(after, at + 1)

    def _leaf(self, end: int) -> None:
        """A value that is no container ends."""

    def _key(self, end: int) -> None:
        """A key ends."""

    def _begin(self, is_object: bool) -> None:
        """An object or array begins."""

    def _close(self, end: int) -> None:
        """The innermost one ends."""

    def _decided(self, place: Place, at: int) -> None:
        """From ``at`` on it is decided how the text goes on from ``place``."""
