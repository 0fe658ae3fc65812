"""How sure the model was of each value of an answer: from its text, tokens and scored choices.

See ``docs/confidence.md`` for what the numbers mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.answer.pieces import (
    Alternative,
    Confidence,
    LeastLikely,
)
from app.core.choices import ScoredChoice, ScoredWay, Way
from app.core.events import AnswerToken
from app.core.json_scan import BLANKS, NUMBER_BYTES, JsonScan, Place

MOST_ALTERNATIVES = 64
MOST_ALTERNATIVE_BYTES = 512
"""Of one value; the rest of them are told together."""

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


def value_confidences(
    data: bytes, start: int, tokens: Tokens, choices: Sequence[ScoredChoice]
) -> list[Confidence]:
    """Of the JSON value ``data``, which begins at byte ``start`` of its answer; in its order.

    ``choices`` are those of the whole answer. What is not whole is left out.
    """
    end = start + len(data)
    scored = {
        (each.start - start, each.place): each for each in choices if start <= each.start <= end
    }
    return _Walk(data, start, tokens, scored).entries()


class _Walk:
    """Goes through one JSON text."""

    def __init__(
        self,
        data: bytes,
        start: int,
        tokens: Tokens,
        choices: dict[tuple[int, Place], ScoredChoice],
    ) -> None:
        self._data = data
        self._start = start
        self._tokens = tokens
        self._choices = choices
        self._open: list[_Container] = []
        self._entries: list[Confidence] = []
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
        if scan.place is Place.NUMBER and scan.after_number is Place.END and data[-1:].isdigit():
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
        chosen = None if choice is None else _chosen(choice, self._data[at:])
        if choice is None or chosen is None:
            return
        container = self._open[-1]
        shares = _Shares.of(choice)
        if shares is None:
            return
        entry = Confidence(container.entry.pointer, "next", logprob=shares.logprob(chosen))
        entry.which = self._which(chosen.way, container)
        entry.mass = shares.mass
        entry.alternatives = self._alternatives(choice, chosen, shares, container)
        self._entries.append(entry)
        if chosen.way.kind != "any key":
            self._count(entry.logprob)

    def _which(self, way: Way, container: _Container) -> Any:
        match way.kind:
            case "key" | "value":
                return json.loads(way.text)
            case "item":
                return container.count
        return None

    def _key(self, end: int) -> None:
        """A key was read; one of many counts by its tokens, too."""
        entry = self._entries[-1]
        container = self._open[-1]
        if entry.what != "next" or entry.pointer != container.entry.pointer:
            return
        if entry.which is None:
            self._add_tokens(entry, self._tokens.take(self._start + self._began, self._start + end))
            entry.which = container.key
            self._count(entry.logprob)

    def _begin_container(self, is_object: bool) -> None:
        entry = Confidence(self._pointer(), "container")
        choice = self._choices.get((self._asked, Place.VALUE))
        if choice is not None:
            self._score(entry, choice)
        self._entries.append(entry)
        self._open.append(_Container(entry, is_object))

    def _close(self) -> None:
        closed = self._open.pop()
        self._ended(closed.entry.logprob)

    def _scalar(self, end: int) -> None:
        """The value that ends here."""
        text = self._data[self._began : end]
        entry = Confidence(self._pointer(), "value", json.loads(text))
        tokens = self._tokens.take(self._start + self._began, self._start + end)
        choice = self._choices.get((self._asked, Place.VALUE))
        if choice is None or not self._score(entry, choice):
            entry.logprob = 0.0
            self._add_tokens(entry, tokens)
        self._entries.append(entry)
        self._ended(entry.logprob)

    def _score(self, entry: Confidence, choice: ScoredChoice) -> bool:
        """Tell what the choice of a value says; whether that is all there is to say."""
        chosen, shares = _chosen(choice, self._data[self._asked :]), _Shares.of(choice)
        if chosen is None or shares is None:
            return False
        entry.logprob = shares.logprob(chosen)
        entry.mass = shares.mass
        entry.alternatives = self._alternatives(choice, chosen, shares, None)
        return chosen.way.kind == "value"

    def _add_tokens(self, entry: Confidence, tokens: Iterator[AnswerToken]) -> None:
        chosen = [token for token in tokens if token.source == "sampled"]
        entry.tokens = len(chosen)
        entry.logprob += math.fsum([token.logprob for token in chosen])
        if chosen:
            least = min(chosen, key=lambda token: token.logprob)
            entry.least_likely = LeastLikely(least.data, math.exp(least.logprob))

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

    def _alternatives(
        self,
        choice: ScoredChoice,
        chosen: ScoredWay,
        shares: _Shares,
        container: _Container | None,
    ) -> list[Alternative]:
        """The other ways, the likeliest first."""
        others = sorted(
            [way for way in choice.ways if way is not chosen], key=lambda way: -way.logprob
        )
        found: list[Alternative] = []
        size, left = 0, len(others)
        for each in others:
            size += len(each.way.text)
            if len(found) == MOST_ALTERNATIVES or size > MOST_ALTERNATIVE_BYTES:
                break
            found.append(self._alternative(each.way, shares.share(each), container))
            left -= 1
        if left:
            rest = math.fsum([shares.share(each) for each in others[len(found) :]])
            found.append(Alternative(rest, "other", left))
        return found

    def _alternative(
        self, way: Way, probability: float, container: _Container | None
    ) -> Alternative:
        if way.kind == "value":
            return Alternative(probability, "value", json.loads(way.text))
        if way.kind == "any key":
            return Alternative(probability, "type", "key")
        if container is None:
            return Alternative(probability, "type", way.kind)
        return Alternative(probability, "next", self._which(way, container))


@dataclass(frozen=True, slots=True)
class _Shares:
    """The ways of a choice, each as a share of all."""

    mass: float | None
    _log_sum: float

    @staticmethod
    def of(choice: ScoredChoice) -> _Shares | None:
        """None where the model gives nothing to any way."""
        highest = max(way.logprob for way in choice.ways)
        if highest == -math.inf:
            return None
        total = math.fsum([math.exp(way.logprob - highest) for way in choice.ways])
        log_sum = highest + math.log(total)
        return _Shares(None if choice.is_open else min(1.0, math.exp(log_sum)), log_sum)

    def logprob(self, way: ScoredWay) -> float:
        return min(0.0, way.logprob - self._log_sum)

    def share(self, way: ScoredWay) -> float:
        return math.exp(self.logprob(way))


def _chosen(choice: ScoredChoice, text: bytes) -> ScoredWay | None:
    """The way that the text went; None where it ends before that is told."""
    for each in choice.ways:
        if text.startswith(each.way.texts):
            return each
        if each.way.ends_answer and text == each.way.text:
            return each
    return None
