"""One choice while it comes: bytes and tokens of the engine -> pieces.

Tokens are told apart by the piece in which their first byte lies::

    text       | reasoning | mark | content     | held back |
    tokens     |   |    |   |    |   |    |   |   |
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace

from app.answer.confidence_reader import ConfidenceReader
from app.answer.custom import InputReader
from app.answer.pieces import (
    CallArguments,
    CallEnd,
    CallStart,
    Confidences,
    Content,
    Delta,
    End,
    Piece,
    Reasoning,
    Spans,
    TextPiece,
)
from app.answer.reader import AnswerReader
from app.answer.spans import SpanReader
from app.answer.tools import new_call_id
from app.core.events import AnswerToken, TokenChunk


class ChoiceReader:
    """Holds back what may yet become another character or a mark."""

    def __init__(
        self,
        index: int,
        reader: AnswerReader | None,
        call_id_length: int | None = None,
        confidence: ConfidenceReader | None = None,
        spans: SpanReader | None = None,
        custom: Collection[str] = (),
    ) -> None:
        """``reader`` None: nothing but content can come, and nothing is looked for.

        ``call_id_length``: see ``new_call_id``. ``confidence`` and ``spans``: where asked for.
        ``custom``: the names of tools whose calls have an input.
        """
        self._spans = spans
        self._confidence = confidence
        self.reasoning_tokens = 0
        self._index = index
        self._reader = reader
        self._call_id_length = call_id_length
        self._custom = custom
        self._input: InputReader | None = None
        """Of the call of a custom tool that comes."""
        self._undecoded = b""
        """The beginning of a character."""
        self._calls = 0
        self._open_calls = 0
        self._waiting: deque[tuple[int, AnswerToken]] = deque()
        """Tokens that no piece has reached yet, and where their first bytes are."""
        self._received = 0
        """Bytes of all tokens so far."""
        self._text = ""
        """The text that no piece has reached yet."""
        self._passed = 0
        """Characters of text before it."""
        self._passed_bytes = 0

    def read(self, chunks: Sequence[TokenChunk]) -> Delta:
        """What ``chunks`` add together, one or more in their order.

        The last one may end the answer, and ends it well: with the reason "stop" or "length".
        """
        last = chunks[-1]
        data, tokens, reason = last.data, last.tokens, last.finish_reason
        if len(chunks) > 1:
            data = b"".join([chunk.data for chunk in chunks])
            tokens = [token for chunk in chunks for token in chunk.tokens]
        text = self._decode(data, reason is not None)
        pieces: list[Piece]
        if self._reader is None:
            pieces = [Content(text, 0, tokens)]
        else:
            self._text += text
            for token in tokens:
                self._waiting.append((self._received, token))
                self._received += len(token.data)
            found = self._reader.push(text)
            if reason is not None:
                found += self._reader.finish()
            pieces = [self._with_own(piece) for piece in found]
        if self._confidence is not None:
            self._confidence.read(chunks, text, pieces)
        if self._spans is not None:
            self._spans.read(pieces)
        if self._custom:
            pieces = [self._with_input(piece) for piece in pieces]
        if reason is not None:
            pieces += self._measured()
            assert reason in ("stop", "length")
            calls_whole = self._calls and not self._open_calls
            stopped_by = last.stopped_by.decode()
            pieces.append(End("tool_calls" if calls_whole else reason, stopped_by))
        return Delta(self._index, pieces)

    def _measured(self) -> list[Piece]:
        """What is told of the values once all have come."""
        found: list[Piece] = []
        spans = None if self._spans is None else self._spans.finish()
        if self._confidence is not None:
            confidences = self._confidence.finish()
            by_place = {(each.call, each.pointer): each for each in spans or ()}
            for each in confidences:
                if each.what == "value":
                    each.span = by_place.get((each.call, each.pointer))
            found.append(Confidences(confidences))
        if self._spans is not None and spans is not None and self._spans.listed:
            found.append(Spans(spans))
        return found

    def _decode(self, data: bytes, last: bool) -> str:
        """The characters that are whole. What is no UTF-8 becomes U+FFFD (Unicode, section 3.9)."""
        data = self._undecoded + data
        text, used = codecs.utf_8_decode(data, "replace", last)
        self._undecoded = data[used:]
        return text

    def _with_own(self, piece: TextPiece) -> TextPiece:
        """``piece``, content with its tokens and a call with an id; counts tokens of reasoning."""
        start, end = self._bytes_before(piece.start), self._bytes_before(piece.end)
        tokens = []
        while self._waiting and self._waiting[0][0] < end:
            position, token = self._waiting.popleft()
            if position >= start or isinstance(piece, Reasoning):
                tokens.append(token)
        match piece:
            case Content():
                piece.tokens = tokens
            case Reasoning():
                self.reasoning_tokens += len(tokens)
            case CallStart():
                self._calls += 1
                self._open_calls += 1
                return replace(piece, id=new_call_id(self._call_id_length))
            case CallEnd():
                self._open_calls -= 1
        return piece

    def _with_input(self, piece: Piece) -> Piece:
        """``piece``, that of a custom tool's call with its input in place of arguments."""
        match piece:
            case CallStart(name=name):
                self._input = InputReader() if name in self._custom else None
                return replace(piece, custom=self._input is not None)
            case CallArguments(text=text) if self._input is not None:
                return replace(piece, text=self._input.push(text), custom=True)
        return piece

    def _bytes_before(self, position: int) -> int:
        """Where a character is in bytes; asked for in ascending order."""
        passed = position - self._passed
        self._passed_bytes += len(self._text[:passed].encode())
        self._text = self._text[passed:]
        self._passed = position
        return self._passed_bytes
