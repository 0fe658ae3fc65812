"""Where the values of an answer are, found by reading it as its reader does."""

from __future__ import annotations

from app.answer.decoding import Decoder
from app.answer.pieces import CallArguments, CallEnd, CallStart, Content, Reasoning
from app.answer.reader import AnswerReader


class AnswerLocator:
    """See ``JsonLocator``: the content where that is a value, and the arguments of each call."""

    def __init__(self, reader: AnswerReader, *, content: bool) -> None:
        """``content``: whether the content is a value."""
        self._reader = reader
        self._content = content
        self._decoder = Decoder()
        self._starts: list[int] = []
        self._outside = 0

    def push(self, data: bytes) -> None:
        bytes_before = self._decoder.bytes_before
        for piece in self._reader.push(self._decoder.decode(data)):
            match piece:
                case Content() if self._content:
                    self._content = False
                    self._starts.append(bytes_before(piece.start))
                case CallStart(in_json=True):  # its end is where the arguments begin
                    self._starts.append(bytes_before(piece.end))
                case Reasoning() | CallEnd():
                    self._outside = bytes_before(piece.end)
                case Content() | CallStart() | CallArguments():
                    pass
        content = self._reader.content_next if self._content else None
        if content is not None:
            self._content = False
            self._starts.append(bytes_before(content))

    def next_value(self, start: int) -> int | None:
        return next((each for each in self._starts if each >= start), None)

    @property
    def outside(self) -> int:
        return self._outside
