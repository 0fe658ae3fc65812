"""Finds the choices in an answer as its text grows."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.choices import UNLISTED, Choice, ChoosingState
from app.core.errors import ConstraintTooComplex
from app.core.json_scan import BLANKS, CHOICES, NUMBER_BYTES, JsonScan, Place
from app.core.request import JsonLocator

_MOST_AT_ONCE = 512
"""Maximum bytes that the state accepts at once: each may cost as much work as a mask."""


@dataclass(frozen=True, slots=True)
class Found:
    """A choice and its place in the answer."""

    start: int
    """Bytes of the answer before it."""
    place: Place
    choice: Choice
    state: ChoosingState
    """State of the constraint at the choice."""
    ahead: bytes
    """Forced bytes between the text so far and the choice; b"" if the text reaches the choice."""


class Cursor:
    """Moves along one answer from choice to choice, as far as its text is known.

    Known are the text so far and the forced text after it::

        text so far     forced
        ...........|:::::::::::|?   undecided
             ^ cursor
    """

    def __init__(
        self, state: ChoosingState, locator: JsonLocator | None, *, is_text: bool = False
    ) -> None:
        """``state``: the answer's start; ``locator`` None: the answer is one value.

        ``is_text``: that value is not JSON, and extends to the end of the answer.
        """
        self._is_text = is_text
        self._text = bytearray()
        self.state = state
        """State at the cursor; replaced when the choice there is drawn."""
        self._at = 0
        """Bytes before the cursor; perhaps more than the text has."""
        self._ahead = bytearray()
        """Bytes between the end of the text and the cursor."""
        self._locator = locator
        self._scan = JsonScan() if locator is None else None
        """None outside of JSON values."""
        self._handled = False
        """Whether the choice at the cursor has been handled."""

    @property
    def length(self) -> int:
        """Bytes of the text so far."""
        return len(self._text)

    def text(self, start: int, end: int) -> bytes:
        return bytes(self._text[start:end])

    def feed(self, data: bytes) -> None:
        """Append ``data`` to the text."""
        self._text += data
        del self._ahead[: len(data)]
        if self._locator is not None:
            self._locator.push(data)

    def next(self) -> Found | None:
        """The next choice that is certain to come; None if it is not known yet.

        Costs O(text passed).
        """
        while True:
            scan = self._scan or self._enter()
            if scan is None:
                return None
            if self._is_text:
                handled, self._handled = self._handled, True
                return None if handled else self._choice(Place.TEXT)
            place = self._place(scan)
            if place is Place.END and self._locator is not None:
                self._scan = None
                continue
            if not self._handled and place in CHOICES:
                self._handled = True
                found = self._choice(place)
                if found is not None:
                    return found
            sure = self._sure()
            if not sure:
                return None
            self._pass(sure[: self._run(scan, sure)])

    def _enter(self) -> JsonScan | None:
        """Move to the next JSON value, or to the end of the text; returns the value's scan."""
        locator = self._locator
        assert locator is not None
        start = locator.next_value(self._at)
        end = min(locator.outside if start is None else start, len(self._text))
        while self._at < end:
            self._pass(self.text(self._at, min(end, self._at + _MOST_AT_ONCE)))
        if start is None or start > len(self._text):
            return None
        self._scan, self._handled = JsonScan(), False
        return self._scan

    def _choice(self, place: Place) -> Found | None:
        choice = self._listed(place)
        if choice is None:
            return None
        return Found(self._at, place, choice, self.state, bytes(self._ahead))

    def _listed(self, place: Place) -> Choice | None:
        try:
            return self.state.choice(place)
        except ConstraintTooComplex:
            return UNLISTED

    def _place(self, scan: JsonScan) -> Place:
        """The kind of place at the cursor.

        A number ends where no digit can follow. The first item of an array is a separate choice,
        once the array is known not to be empty.
        """
        if scan.place is Place.NUMBER:
            sure = self._sure()
            if sure:
                if sure[0] not in NUMBER_BYTES:
                    scan.end_number()
            elif scan.after_value() in CHOICES:
                choice = self._listed(scan.after_value())
                if choice is not None and not choice.is_open:
                    scan.end_number()
        elif scan.place is Place.FIRST_ITEM and self._handled and self._has_item():
            scan.begin_item()
            self._handled = False
        return scan.place

    def _has_item(self) -> bool:
        """Whether the array that has begun is known to have an item."""
        sure = self._sure().lstrip(BLANKS)
        if sure:
            return sure[0] not in b"]"
        choice = self._listed(Place.FIRST_ITEM)
        return choice is not None and {way.kind for way in choice.ways} == {"item"}

    def _sure(self) -> bytes:
        """Known bytes after the cursor; b"" if there are none."""
        if self._at < len(self._text):
            return self.text(self._at, self._at + _MOST_AT_ONCE)
        return self.state.forced()

    def _run(self, scan: JsonScan, sure: bytes) -> int:
        """Number of bytes up to the next place that may be a choice."""
        for index, byte in enumerate(sure):
            place = scan.place
            if place is Place.NUMBER and byte not in NUMBER_BYTES:
                return index
            scan.push(byte)
            if place is Place.STRING or byte not in BLANKS:
                self._handled = False
                if scan.place in CHOICES or scan.place is Place.END:
                    return index + 1
        return len(sure)

    def _pass(self, data: bytes) -> None:
        state = self.state.copy()
        state.accept_bytes(data)
        self.state = state
        self._at += len(data)
        ahead = self._at - len(self._text)
        if ahead > 0:
            self._ahead += data[-ahead:]
