"""The values of a JSON answer, each reported as soon as it is complete: items before their list.

A value's text is a piece of the answer's, as the model wrote it: nothing is parsed but keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from app.answer.pieces import (
    CallArguments,
    Content,
    End,
    Fields,
    FieldValue,
    Piece,
    pointer_below,
)
from app.core.json_scan import JsonWalk, Place

LARGEST = 1 << 14
"""Maximum bytes of a reported value; as much of the text is kept."""
MOST_LEVELS = 8
"""Maximum nesting depth of a reported value: each level repeats its text."""
LONGEST_POINTER = 512
"""Characters of the pointer to a value that is reported."""


@dataclass(frozen=True, slots=True)
class ClosedValue:
    """A value that ``max_tokens`` cut short."""

    choice: int
    function: str | None
    """Function whose arguments contain it; None: the content."""
    pointer: str


class FieldReader:
    """Finds the values in the pieces of one choice: of its content, and of its calls' arguments."""

    def __init__(self, *, content: bool) -> None:
        """``content``: whether the content is a JSON value."""
        self._content = ValueScanner() if content else None
        self._calls: dict[int, ValueScanner] = {}

    def read(self, added: Sequence[Piece]) -> list[Piece]:
        """The pieces that were ``added``, each with the values that it completes behind it."""
        pieces: list[Piece] = []
        for piece in added:
            found: Sequence[FieldValue] = ()
            match piece:
                case Content(text=text) if self._content is not None:
                    found = self._content.push(text.encode())
                case CallArguments(index=index, text=text, custom=False):
                    scanner = self._calls.get(index)
                    if scanner is None:
                        scanner = self._calls[index] = ValueScanner(index)
                    found = scanner.push(text.encode())
                case End(reason="stop", stopped_by="") if self._content is not None:
                    if last := self._content.end():
                        pieces.append(Fields(last))
            pieces.append(piece)
            if found:
                pieces.append(Fields(found))
        return pieces


@dataclass(slots=True)
class _Container:
    """An object or array that is open."""

    pointer: str | None
    """None: it is too long to be reported."""
    start: int
    is_object: bool
    count: int = 0
    key: str | None = ""
    """None: it is too long to be reported."""
    levels: int = 1
    """Nesting depth, this container included."""

    @property
    def member(self) -> str | None:
        """Pointer to the next member; None: it is too long."""
        name = self.key if self.is_object else self.count
        if self.pointer is None or name is None:
            return None
        pointer = pointer_below(self.pointer, name)
        return pointer if len(pointer) <= LONGEST_POINTER else None


class ValueScanner(JsonWalk):
    """One JSON text, in chunks of any size. A byte costs a microsecond or two."""

    def __init__(self, call: int | None = None) -> None:
        """``call``: index of the call whose arguments the text is, if any."""
        super().__init__()
        self._call = call
        self._open: list[_Container] = []
        self._kept = bytearray()
        """The last bytes of the text."""
        self._passed = 0
        """Number of bytes before those kept."""
        self._found: list[FieldValue] = []

    def push(self, data: bytes) -> list[FieldValue]:
        """The values that ``data`` completes, in the order of their ends."""
        start = self._passed + len(self._kept)
        self._kept += data
        for at, byte in enumerate(data, start):
            self._push(at, byte)
        if len(self._kept) > LARGEST:
            excess = len(self._kept) - LARGEST
            del self._kept[:excess]
            self._passed += excess
        found, self._found = self._found, []
        return found

    def end(self) -> list[FieldValue]:
        """The number, if the text is one: only the end of the text ends it."""
        if self._scan.place is Place.NUMBER and not self._open:
            self._scan.end_number()
            self._leaf(self._passed + len(self._kept))
        found, self._found = self._found, []
        return found

    @property
    def pointer(self) -> str:
        """Pointer to the current value, or to the innermost reportable one around it."""
        inside = self._scan.place in (Place.NUMBER, Place.WORD) or self._scan.in_value
        pointers = [each.pointer for each in self._open] + [self._pointer] * inside
        return next((each for each in reversed(pointers) if each is not None), "")

    @property
    def _pointer(self) -> str | None:
        """Pointer to the value that begins, or has just ended."""
        return self._open[-1].member if self._open else ""

    def _key(self, end: int) -> None:
        text = self._text(self._began, end) if end - self._began <= LONGEST_POINTER * 12 else None
        self._open[-1].key = None if text is None else json.loads(text)

    def _begin(self, is_object: bool) -> None:
        self._open.append(_Container(self._pointer, self._began, is_object))

    def _leaf(self, end: int) -> None:
        self._ended(self._pointer, self._began, end)

    def _close(self, end: int) -> None:
        closed = self._open.pop()
        if self._open:
            self._open[-1].levels = max(self._open[-1].levels, closed.levels + 1)
        self._ended(closed.pointer, closed.start, end if closed.levels <= MOST_LEVELS else None)

    def _ended(self, pointer: str | None, start: int, end: int | None) -> None:
        if pointer is not None:
            text = None if end is None else self._text(start, end)
            self._found.append(FieldValue(pointer, text, self._call))
        if self._open:
            self._open[-1].count += 1

    def _text(self, start: int, end: int) -> bytes | None:
        """The bytes from ``start`` to ``end``; None: too large."""
        if end - start > LARGEST or start < self._passed:
            return None
        return bytes(self._kept[start - self._passed : end - self._passed])
