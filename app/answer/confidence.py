"""How sure the model was of each value of an answer: from its text, tokens and scored choices.

See ``docs/confidence.md`` for what the numbers mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.answer.pieces import AlternativeKind, Confidence, LeastLikely, TokenByToken
from app.answer.probability_mass import tell
from app.core.choices import ScoredChoice, Way
from app.core.events import AnswerToken
from app.core.json_scan import BLANKS, NUMBER_BYTES, JsonScan, Place

_OPENING, _CLOSING = b"{[", b"}]"
_NEXT = (Place.FIRST_KEY, Place.NEXT_KEY, Place.FIRST_ITEM, Place.NEXT_ITEM)


@dataclass(slots=True)
class _Container:
    """An object or array that is open."""

    entry: Confidence
    is_object: bool
    count: int = 0
    key: str = ""

    @property
    def next_pointer(self) -> str:
        """Of the member that begins."""
        name = self.key if self.is_object else str(self.count)
        return f"{self.entry.pointer}/{name.replace('~', '~0').replace('/', '~1')}"


@dataclass(slots=True)
class Tokens:
    """An answer's tokens by the bytes that they added."""

    tokens: list[AnswerToken] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    length: int = 0
    _next: int = 0
    """The first that was not counted."""

    def add(self, token: AnswerToken) -> None:
        if token.data:
            self.tokens.append(token)
            self.starts.append(self.length)
            self.length += len(token.data)

    def take(self, start: int, end: int) -> Iterator[AnswerToken]:
        """Those with bytes from ``start`` to ``end``; each is given once. Ascending ranges."""
        while self._next < len(self.tokens) and self.starts[self._next] < end:
            token = self.tokens[self._next]
            if self.starts[self._next] + len(token.data) > start:
                yield token
            self._next += 1


@dataclass(frozen=True, slots=True)
class Told:
    """What there is to say of one value, and of those in it."""

    entries: list[Confidence]
    by_tokens: list[TokenByToken]


Span = Callable[[int, int], tuple[int, int]]
"""From a range of bytes of a JSON text to that of its answer."""


def value_confidences(
    data: bytes, start: int, tokens: Tokens, choices: Sequence[ScoredChoice]
) -> Told:
    """Of the JSON value ``data``, which begins at byte ``start`` of its answer; in its order.

    ``choices`` are those of the whole answer. What is not whole is left out.
    """
    end = start + len(data)
    known = {
        (each.start - start, each.place): each for each in choices if start <= each.start <= end
    }
    walk = _Walk(data, lambda first, last: (start + first, start + last), tokens, known)
    return Told(walk.entries(), walk.by_tokens)


def translated_confidences(data: bytes, span: Span, tokens: Tokens) -> Told:
    """Of the JSON value ``data``, which its answer has in another notation: by tokens alone.

    ``span``: where in the answer it is said what stands from one byte of ``data`` to another.
    """
    return Told(_Walk(data, span, tokens, {}).entries(), [])


def text_confidence(
    data: bytes, start: int, tokens: Tokens, choices: Sequence[ScoredChoice]
) -> Told:
    """The same of a text that is one value and no JSON."""
    drawn = tokens.take(start, start + len(data))
    entry = Confidence("", "value", data.decode(errors="replace"))
    choice = next((each for each in choices if each.place is Place.TEXT), None)
    if choice is None or tell(entry, choice, data, _alternative) is None:
        _add_tokens(entry, drawn)
    by_tokens = choice is not None and choice.by_tokens
    return Told([entry], [TokenByToken("", "value")] if by_tokens else [])


class _Walk:
    """Goes through one JSON text."""

    def __init__(
        self,
        data: bytes,
        span: Span,
        tokens: Tokens,
        choices: dict[tuple[int, Place], ScoredChoice],
    ) -> None:
        self._data = data
        self._span = span
        self._tokens = tokens
        self._choices = choices
        self._open: list[_Container] = []
        self._entries: list[Confidence] = []
        self.by_tokens: list[TokenByToken] = []
        self._whole: set[int] = set()
        """Containers that were closed, by their id."""
        self._began = 0
        """Where the value or key that is being read begins."""
        self._asked = 0
        """Where it was decided what it would be."""

    def entries(self) -> list[Confidence]:
        scan, data = JsonScan(), self._data
        self._decided(scan.place, 0)
        for at, byte in enumerate(data):
            before = scan.place
            if before is Place.NUMBER and byte not in NUMBER_BYTES:
                self._scalar(at)
                scan.end_number()
                before = scan.place
                self._decided(before, at)
            scan.push(byte)
            self._pushed(before, scan.place, at, byte)
        if scan.place is Place.NUMBER and scan.after_value() is Place.END and data[-1:].isdigit():
            self._scalar(len(data))
        open_ones = {id(each.entry) for each in self._open}
        return [each for each in self._entries if id(each) not in open_ones]

    def _pushed(self, before: Place, after: Place, at: int, byte: int) -> None:
        """One byte was read."""
        if before in (Place.STRING, Place.WORD):
            if after is Place.COLON:
                self._open[-1].key = json.loads(self._data[self._began : at + 1])
                self._key(at + 1)
            elif after is not before:
                self._scalar(at + 1)
        elif byte in BLANKS:
            return
        elif byte in _CLOSING:
            self._close()
        elif before in (Place.VALUE, Place.FIRST_ITEM, Place.FIRST_KEY, Place.KEY):
            self._began = at
            if byte in _OPENING:
                self._begin_container(byte == _OPENING[0])
        if after is not before or byte in _OPENING + _CLOSING:
            self._decided(after, at + 1)

    def _decided(self, place: Place, at: int) -> None:
        """What is next is decided from here on: note it where it is the next member."""
        if place is Place.VALUE or place is Place.FIRST_ITEM:
            self._asked = at
        if place in _NEXT:
            self._next(place, at)

    def _next(self, place: Place, at: int) -> None:
        choice = self._choices.get((at, place))
        if choice is None:
            return
        container = self._open[-1]
        if choice.by_tokens:
            self.by_tokens.append(TokenByToken(container.entry.pointer, "next"))
        entry = Confidence(container.entry.pointer, "next")
        way = tell(entry, choice, self._data[at:], lambda way: _alternative(way, container))
        if way is None:
            return
        entry.which = _which(way, container)
        self._entries.append(entry)
        if way.kind != "any key":
            self._count(entry.logprob)

    def _key(self, end: int) -> None:
        """A key was read; one of many counts by its tokens, too."""
        entry = self._entries[-1]
        container = self._open[-1]
        if entry.what != "next" or entry.pointer != container.entry.pointer:
            return
        if entry.which is None:
            _add_tokens(entry, self._tokens.take(*self._span(self._began, end)))
            entry.which = container.key
            self._count(entry.logprob)

    def _begin_container(self, is_object: bool) -> None:
        entry = Confidence(self._pointer(), "container")
        self._tell(entry)
        self._entries.append(entry)
        self._open.append(_Container(entry, is_object))

    def _close(self) -> None:
        closed = self._open.pop()
        self._ended(closed.entry.logprob)

    def _scalar(self, end: int) -> None:
        """The value that ends here."""
        text = self._data[self._began : end]
        entry = Confidence(self._pointer(), "value", json.loads(text))
        tokens = self._tokens.take(*self._span(self._began, end))
        way = self._tell(entry)
        if way is None or way.kind != "value":
            entry.logprob = 0.0
            _add_tokens(entry, tokens)
        self._entries.append(entry)
        self._ended(entry.logprob)

    def _tell(self, entry: Confidence) -> Way | None:
        """Tell what was scored of the value that begins, if it was."""
        choice = self._choices.get((self._asked, Place.VALUE))
        if choice is None:
            return None
        if choice.by_tokens:
            self.by_tokens.append(TokenByToken(entry.pointer, "value"))
        return tell(entry, choice, self._data[self._asked :], _alternative)

    def _ended(self, logprob: float) -> None:
        """A member is whole."""
        self._count(logprob)
        if self._open:
            self._open[-1].count += 1

    def _count(self, logprob: float) -> None:
        """What is below a container is a part of it."""
        if self._open:
            self._open[-1].entry.logprob += logprob

    def _pointer(self) -> str:
        return self._open[-1].next_pointer if self._open else ""


def _add_tokens(entry: Confidence, tokens: Iterator[AnswerToken]) -> None:
    chosen = [token for token in tokens if token.source == "sampled"]
    entry.tokens = len(chosen)
    entry.logprob += math.fsum([token.logprob for token in chosen])
    if chosen:
        least = min(chosen, key=lambda token: token.logprob)
        entry.least_likely = LeastLikely(least.data, math.exp(least.logprob))


def _alternative(way: Way, container: _Container | None = None) -> tuple[AlternativeKind, Any]:
    """What another way is called; ``container``: where it is the next member of one."""
    if way.kind in ("value", "text"):
        return "value", _which(way)
    if way.kind == "any key":
        return "type", "key"
    if container is None:
        return "type", way.kind
    return "next", _which(way, container)


def _which(way: Way, container: _Container | None = None) -> Any:
    match way.kind:
        case "key" | "value":
            return json.loads(way.text)
        case "text":
            return way.text.decode(errors="replace")
        case "item" if container is not None:
            return container.count
    return None
