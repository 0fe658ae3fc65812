"""The confidence of one choice of a request, collected while it comes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from app.answer.confidence import (
    Tokens,
    Told,
    text_confidence,
    translated_confidences,
    value_confidences,
)
from app.answer.pieces import (
    CallArguments,
    CallStart,
    Confidence,
    Content,
    Piece,
    TokenByToken,
)
from app.core.choices import ScoredChoice
from app.core.events import TokenChunk

ContentKind = Literal["json", "text", "free"]
"""A JSON value; a text that is a value as a whole; any text, of which nothing is told."""


class ConfidenceReader:
    """Collects what the confidence of one choice of a request is made of, while it comes."""

    def __init__(self, content: ContentKind, *, listed: bool = True, exact: bool = False) -> None:
        """``listed``: whether the confidence was asked for, or only where choices are not exact.

        ``exact``: whether choices are to be.
        """
        self._content = content
        self.listed = listed
        self._exact = exact
        self._text: list[str] = []
        self._tokens = Tokens()
        self._choices: list[ScoredChoice] = []
        self._values: dict[int | None, tuple[int, list[str]]] = {}
        """By call, or None for the content: where it begins, in characters, and its text."""
        self._translated: dict[int, list[CallArguments]] = {}
        """By call, where its arguments are not JSON in the answer."""

    def read(self, chunks: Sequence[TokenChunk], text: str, pieces: Sequence[Piece]) -> None:
        """The answer goes on with ``text``; ``pieces`` came of it."""
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

    def finish(self) -> Told:
        """What there is to say, in the order of the text. Costs O(answer)."""
        found: list[Confidence] = []
        by_tokens: list[TokenByToken] = []
        # No choice is found in another notation than JSON.
        translated = [TokenByToken("", "value", call) for call in self._translated if self._exact]
        if not self.listed and not any(each.by_tokens for each in self._choices):
            return Told(found, translated)
        whole = "".join(self._text)
        for call, (start, parts) in self._values.items():
            data, before = "".join(parts).encode(), len(whole[:start].encode())
            is_text = call is None and self._content == "text"
            told = text_confidence if is_text else value_confidences
            of_value = told(data, before, self._tokens, self._choices)
            for entry in of_value.entries:
                entry.call = call
            found += of_value.entries
            by_tokens += [replace(each, call=call) for each in of_value.by_tokens]
        for call, pieces in self._translated.items():
            data = "".join(piece.text for piece in pieces).encode()
            of_call = translated_confidences(data, _Places(whole, pieces).span, self._tokens)
            for entry in of_call.entries:
                entry.call = call
            found += of_call.entries
        return Told(found, by_tokens + translated)


class _Places:
    """Where in an answer it is said what stands in the JSON of a call's arguments, in bytes."""

    def __init__(self, answer: str, pieces: Sequence[CallArguments]) -> None:
        self._begins: list[int] = []
        """In the JSON, of each piece, and the end of the last."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        """In the answer, of each piece."""
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
        """Of the bytes from ``first`` to ``last``: of a value that is a part of a piece, or that
        begins and ends with one."""
        at = bisect_right(self._begins, first) - 1
        until = bisect_left(self._begins, last) - 1
        start = min(self._starts[at] + first - self._begins[at], self._ends[at])
        return start, max(self._ends[until] - (self._begins[until + 1] - last), start)
