"""Where the JSON values of an answer are, found by reading it as its reader does."""

from __future__ import annotations

import codecs

from app.answer.pieces import CallArguments, CallEnd, CallStart, Content, Reasoning
from app.answer.reader import AnswerReader


class AnswerLocator:
    """See ``JsonLocator``: the content where that is JSON, and the arguments of each call."""

    def __init__(self, reader: AnswerReader, *, content: bool) -> None:
        """``content``: whether the content is a JSON value."""
        self._reader = reader
        self._content = content
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        """The text behind the last place that was asked for."""
        self._passed = 0
        """Characters before it."""
        self._passed_bytes = 0
        self._starts: list[int] = []
        self._outside = 0

    def push(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        self._text += text
        for piece in self._reader.push(text):
            match piece:
                case Content() if self._content:
                    self._content = False
                    self._starts.append(self._bytes_before(piece.start))
                case CallStart(in_json=True):  # its end is where the arguments begin
                    self._starts.append(self._bytes_before(piece.end))
                case Reasoning() | CallEnd():
                    self._outside = self._bytes_before(piece.end)
                case Content() | CallStart() | CallArguments():
                    pass

    def next_value(self, start: int) -> int | None:
        return next((each for each in self._starts if each >= start), None)

    @property
    def outside(self) -> int:
        return self._outside

    def _bytes_before(self, position: int) -> int:
        """Where a character is in bytes; asked for in ascending order."""
        passed = position - self._passed
        self._passed_bytes += len(self._text[:passed].encode())
        self._text = self._text[passed:]
        self._passed = position
        return self._passed_bytes
