"""Confidence in each value of an answer, from its text, tokens and scored choices.

A scored choice is reported by probabilities normalized over its ways (continuations);
``ConfidenceReader`` collects during streaming. See ``docs/confidence.md`` for the numbers.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from app.answer.pieces import (
    Alternative,
    AlternativeKind,
    CallArguments,
    CallStart,
    Confidence,
    Content,
    LeastLikely,
    Piece,
    TokenByToken,
    pointer_below,
)
from app.core.choices import ScoredChoice, ScoredWay, Way
from app.core.events import AnswerToken, TokenChunk
from app.core.json_scan import JsonWalk, Place

MOST_ALTERNATIVES = 64
MOST_ALTERNATIVE_BYTES = 512
"""Maximum number and bytes of the alternatives of one value; the rest is one entry."""

Named = Callable[[Way], tuple[AlternativeKind, Any]]
"""Kind and value under which an alternative is reported."""


def write_score(
    entry: Confidence, choice: ScoredChoice, text: bytes, named: Named, at: int = 0
) -> Way | None:
    """Write the scores of ``choice`` into ``entry``; the answer continued with ``text[at:]``.

    Returns the way taken; None, with nothing written, if the text ends before it is decided, if
    every way has probability 0, or if none was scored.
    """

    def is_taken(way: Way) -> bool:
        ends = way.ends_answer and len(way.text) == len(text) - at and text.endswith(way.text)
        return text.startswith(way.texts, at) or ends

    chosen = next((each for each in choice.ways if is_taken(each.way)), None)
    highest = max([way.logprob for way in choice.ways], default=-math.inf)
    if chosen is None or highest == -math.inf:
        return None
    total = math.fsum([math.exp(way.logprob - highest) for way in choice.ways])
    log_sum = highest + math.log(total)

    def logprob(way: ScoredWay) -> float:
        """Log-probability of a way, normalized over all ways."""
        return min(0.0, way.logprob - log_sum)

    entry.logprob = logprob(chosen)
    entry.mass = None if choice.is_open else min(1.0, math.exp(log_sum))
    entry.alternatives = found = list[Alternative]()
    others = sorted([way for way in choice.ways if way is not chosen], key=lambda way: -way.logprob)
    size = 0
    for each in others:
        size += len(each.way.text)
        if len(found) == MOST_ALTERNATIVES or size > MOST_ALTERNATIVE_BYTES:
            break
        found.append(Alternative(math.exp(logprob(each)), *named(each.way)))
    if rest := others[len(found) :]:
        share = math.fsum([math.exp(logprob(each)) for each in rest])
        found.append(Alternative(share, "other", len(rest)))
    return chosen.way


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
        """Pointer to the member that begins."""
        return pointer_below(self.entry.pointer, self.key if self.is_object else self.count)


@dataclass(slots=True)
class Tokens:
    """An answer's tokens by the bytes that they added."""

    tokens: list[AnswerToken] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    length: int = 0
    _next: int = 0
    """Index of the first token that was not taken."""

    def add(self, token: AnswerToken) -> None:
        if token.data:
            self.tokens.append(token)
            self.starts.append(self.length)
            self.length += len(token.data)

    def take(self, start: int, end: int) -> Iterator[AnswerToken]:
        """Tokens with bytes from ``start`` to ``end``, each only once; ranges must ascend."""
        while self._next < len(self.tokens) and self.starts[self._next] < end:
            token = self.tokens[self._next]
            if self.starts[self._next] + len(token.data) > start:
                yield token
            self._next += 1


@dataclass(frozen=True, slots=True)
class Scores:
    """The confidence of one value, and of those in it."""

    entries: list[Confidence]
    by_tokens: list[TokenByToken]


def value_confidences(
    data: bytes, start: int, tokens: Tokens, choices: Sequence[ScoredChoice]
) -> Scores:
    """Confidence of the JSON value ``data`` at byte ``start`` of its answer, in text order.

    ``choices`` are those of the whole answer. Incomplete values are left out.
    """
    end = start + len(data)
    known = {
        (each.start - start, each.place): each for each in choices if start <= each.start <= end
    }
    walk = _Walk(data, lambda first, last: (start + first, start + last), tokens, known)
    return Scores(walk.entries(), walk.by_tokens)


def text_confidence(
    data: bytes, start: int, tokens: Tokens, choices: Sequence[ScoredChoice]
) -> Scores:
    """Confidence of a text that is one value, and not JSON."""
    drawn = tokens.take(start, start + len(data))
    entry = Confidence("", "value", data.decode(errors="replace"))
    choice = next((each for each in choices if each.place is Place.TEXT), None)
    if choice is None or write_score(entry, choice, data, _alternative) is None:
        _add_tokens(entry, drawn)
    by_tokens = choice is not None and choice.by_tokens
    return Scores([entry], [TokenByToken("", "value")] if by_tokens else [])


class _Walk(JsonWalk):
    """Goes through one JSON text."""

    def __init__(
        self,
        data: bytes,
        span: Callable[[int, int], tuple[int, int]],
        tokens: Tokens,
        choices: dict[tuple[int, Place], ScoredChoice],
    ) -> None:
        """``span``: from a range of bytes in ``data`` to the range in its answer."""
        super().__init__()
        self._data = data
        self._span = span
        self._tokens = tokens
        self._choices = choices
        self._open: list[_Container] = []
        self._entries: list[Confidence] = []
        self.by_tokens: list[TokenByToken] = []
        self._asked = 0
        """Offset at which the choice of the current value was made."""

    def entries(self) -> list[Confidence]:
        scan, data = self._scan, self._data
        self._decided(scan.place, 0)
        for at, byte in enumerate(data):
            self._push(at, byte)
        if scan.place is Place.NUMBER and scan.after_value() is Place.END and data[-1:].isdigit():
            self._leaf(len(data))
        open_ones = {id(each.entry) for each in self._open}
        return [each for each in self._entries if id(each) not in open_ones]

    def _decided(self, place: Place, at: int) -> None:
        """Handle an offset at which the answer decides what comes next, in this ``place``."""
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
        way = write_score(entry, choice, self._data, lambda way: _alternative(way, container), at)
        if way is None:
            return
        entry.which = _which(way, container)
        self._entries.append(entry)
        if way.kind != "any key":
            self._count(entry.logprob)

    def _key(self, end: int) -> None:
        """A name that was not listed as a way of its own also counts by its tokens."""
        entry = self._entries[-1]
        container = self._open[-1]
        container.key = json.loads(self._data[self._began : end])
        if entry.what != "next" or entry.pointer != container.entry.pointer:
            return
        if entry.which is None:
            _add_tokens(entry, self._tokens.take(*self._span(self._began, end)))
            entry.which = container.key
            self._count(entry.logprob)

    def _begin(self, is_object: bool) -> None:
        entry = Confidence(self._pointer(), "container")
        self._write_score(entry)
        self._entries.append(entry)
        self._open.append(_Container(entry, is_object))

    def _close(self, end: int) -> None:
        self._ended(self._open.pop().entry.logprob)

    def _leaf(self, end: int) -> None:
        entry = Confidence(self._pointer(), "value", json.loads(self._data[self._began : end]))
        tokens = self._tokens.take(*self._span(self._began, end))
        way = self._write_score(entry)
        if way is None or way.kind != "value":
            entry.logprob = 0.0
            _add_tokens(entry, tokens)
        self._entries.append(entry)
        self._ended(entry.logprob)

    def _write_score(self, entry: Confidence) -> Way | None:
        """Write the scores of the value that begins, if any; returns the way taken."""
        choice = self._choices.get((self._asked, Place.VALUE))
        if choice is None:
            return None
        if choice.by_tokens:
            self.by_tokens.append(TokenByToken(entry.pointer, "value"))
        return write_score(entry, choice, self._data, _alternative, self._asked)

    def _ended(self, logprob: float) -> None:
        """Account for a complete member."""
        self._count(logprob)
        if self._open:
            self._open[-1].count += 1

    def _count(self, logprob: float) -> None:
        """Add ``logprob`` to the container around it."""
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
    """Kind and value of an alternative; ``container``: the one whose next member it is."""
    if way.kind in ("value", "text"):
        return "value", _which(way)
    if way.kind == "any key":
        return "type", "key"
    return ("type", way.kind) if container is None else ("next", _which(way, container))


def _which(way: Way, container: _Container | None = None) -> Any:
    match way.kind:
        case "key" | "value":
            return json.loads(way.text)
        case "text":
            return way.text.decode(errors="replace")
        case "item" if container is not None:
            return container.count
    return None


ContentKind = Literal["json", "text", "free"]
"""Kind of content: a JSON value; a text that is one value; free text without measurements."""


class ConfidenceReader:
    """Collects the tokens and scores of one choice of a request as it streams."""

    def __init__(self, content: ContentKind, *, listed: bool = True, exact: bool = False) -> None:
        """``listed``: whether confidence was requested, and not only the inexact choices.

        ``exact``: whether exact choices were requested.
        """
        self._content = content
        self._listed = listed
        self._exact = exact
        self._text: list[str] = []
        self._tokens = Tokens()
        self._choices: list[ScoredChoice] = []
        self._values: dict[int | None, tuple[int, list[str]]] = {}
        """Start in characters, and parts of the text, by call; None: the content."""
        self._translated: dict[int, list[CallArguments]] = {}
        """Parts of arguments by call, for calls whose arguments are not JSON in the answer."""

    def read(self, chunks: Sequence[TokenChunk], text: str, pieces: Sequence[Piece]) -> None:
        """``text``: the next part of the answer; ``pieces``: those that it added."""
        self._text.append(text)
        for chunk in chunks:
            self._choices += chunk.choices
            for token in chunk.tokens:
                self._tokens.add(token)
        for piece in pieces:
            match piece:
                case Content() if self._content != "free":
                    self._values.setdefault(None, (piece.start, []))[1].append(piece.text)
                case CallStart(in_json=True):
                    self._values[piece.index] = (piece.end, [])
                case CallArguments() if piece.index in self._values:
                    self._values[piece.index][1].append(piece.text)
                case CallArguments():
                    self._translated.setdefault(piece.index, []).append(piece)

    def finish(self) -> Scores:
        """All entries, in the order of the text. Costs O(answer)."""
        found: list[Confidence] = []
        by_tokens: list[TokenByToken] = []
        # No choice is found in another notation than JSON.
        translated = [TokenByToken("", "value", call) for call in self._translated if self._exact]
        if not self._listed and not any(each.by_tokens for each in self._choices):
            return Scores(found, translated)
        whole = "".join(self._text)
        for call, (start, parts) in self._values.items():
            data, before = "".join(parts).encode(), len(whole[:start].encode())
            is_text = call is None and self._content == "text"
            score = text_confidence if is_text else value_confidences
            of_value = score(data, before, self._tokens, self._choices)
            for entry in of_value.entries:
                entry.call = call
            found += of_value.entries
            by_tokens += [replace(each, call=call) for each in of_value.by_tokens]
        for call, pieces in self._translated.items():
            data = "".join(piece.text for piece in pieces).encode()
            entries = _Walk(data, _Places(whole, pieces).span, self._tokens, {}).entries()
            for entry in entries:
                entry.call = call
            found += entries
        return Scores(found, by_tokens + translated)


class _Places:
    """Maps a part of the JSON of a call's arguments to the answer's bytes that spell it."""

    def __init__(self, answer: str, pieces: Sequence[CallArguments]) -> None:
        self._begins: list[int] = []
        """Start of each piece in the JSON, and the end of the last."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Start and end of each piece in the answer."""
        read, passed, size = 0, 0, 0
        for piece in pieces:
            self._begins.append(size)
            size += len(piece.text.encode())
            for places, place in ((self._starts, piece.start), (self._ends, piece.end)):
                passed += len(answer[read:place].encode())
                read = place
                places.append(passed)
        self._begins.append(size)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The answer's bytes for those from ``first`` to ``last`` of the JSON: part of one piece,
        or several complete pieces."""
        at = bisect_right(self._begins, first) - 1
        until = bisect_left(self._begins, last) - 1
        start = min(self._starts[at] + first - self._begins[at], self._ends[at])
        return start, max(self._ends[until] - (self._begins[until + 1] - last), start)
