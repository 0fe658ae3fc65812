"""Streaming reader of one choice: bytes and tokens of the engine -> pieces.

A token belongs to the piece in which its first byte lies::

    text       | reasoning | mark | content     | held back |
    tokens     |   |    |   |    |   |    |   |   |

Origins are reported for tokens whose text has been sent. The engine gives each token with all of
its bytes; those of the stop string, which the text leaves out, are cut here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from app.answer.confidence import ConfidenceReader
from app.answer.fields import FieldReader
from app.answer.incoming import Utf8Decoder
from app.answer.pieces import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Measurements,
    Piece,
    PromptTokens,
    Reasoning,
    TextPiece,
)
from app.answer.plan import AnswerPlan
from app.answer.spans import Quotable, SpanReader
from app.answer.tools import InputReader
from app.core.events import AnswerToken, Origins, OriginToken, TokenChunk
from app.core.request import GenerationOptions
from app.core.specs import JsonSchema


class OriginReader:
    """The origins of the tokens of one choice. Their joined bytes are its text and marks."""

    def __init__(self) -> None:
        self._tokens: list[OriginToken] = []
        self._ends: list[int] = []
        """End of each token, in bytes of the answer."""
        self._text = 0
        """Bytes of the answer so far."""
        self._known = 0
        """Number of tokens that were reported to the client."""

    def read(self, chunks: Sequence[TokenChunk]) -> Origins | None:
        """The tokens that ``chunks`` add or change; None: there are none."""
        first = self._known
        for chunk in chunks:
            self._text += len(chunk.data)
            if (origins := chunk.origins) is not None:
                first = min(first, origins.index)
                del self._tokens[origins.index :], self._ends[origins.index :]
                self._tokens += origins.tokens
                end = self._ends[-1] if self._ends else 0
                for token in origins.tokens:
                    end += len(token.data)
                    self._ends.append(end)
        ended = chunks[-1].finish_reason is not None
        known = len(self._tokens) if ended else bisect_right(self._ends, self._text)
        first = min(first, known)
        if first == known == self._known:
            return None
        self._known = known
        return Origins(first, [self._cut(index) for index in range(first, known)])

    def _cut(self, index: int) -> OriginToken:
        """A token without bytes after the answer's end."""
        token, excess = self._tokens[index], self._ends[index] - self._text
        if excess <= 0:
            return token
        return replace(token, data=token.data[: max(0, len(token.data) - excess)])


class ChoiceReader:
    """Reads one choice of a request. Holds back what may yet become another character or a mark."""

    def __init__(
        self,
        plan: AnswerPlan,
        options: GenerationOptions,
        *,
        exact: bool = False,
        texts: Quotable | None = None,
    ) -> None:
        """``exact``: exact choices are wanted. ``texts``: texts in which values are looked
        up, if spans are reported."""
        tools = () if plan.tools is None else plan.tools.tools
        self.reasoning_tokens = 0
        self._options = options
        self._shows_reasoning = plan.reasoning.shown
        self._reader = None if plan.is_content_alone else plan.answer_reader()
        if self._reader is not None:
            self._reader.push(plan.prefill_text)
        self._call_ids = plan.format.tools.ids
        self._custom = frozenset(tool.name for tool in tools if tool.custom)
        self._input: InputReader | None = None
        """Reader of the input, while the current call is one of a custom tool."""
        self._confidence = None
        if options.confidence or exact:
            self._confidence = ConfidenceReader(
                plan.content_is, listed=options.confidence, exact=exact
            )
        self._spans = None
        if texts is not None:
            content = plan.content.schema if isinstance(plan.content, JsonSchema) else None
            self._spans = SpanReader(content, {tool.name: tool.parameters for tool in tools}, texts)
        self._fields = FieldReader(content=plan.content_is == "json") if options.fields else None
        if self._fields is not None and plan.prefill is not None:
            self._fields.read([Content(plan.prefill.content)])
        self._origins = OriginReader() if options.origins else None
        self._calls = 0
        self._open_calls = 0
        self._waiting: deque[tuple[int, AnswerToken]] = deque()
        """Tokens that are in no piece yet, with the offsets of their first bytes."""
        self._prefill = len(plan.prefill_text)
        """Number of characters of the client's prefill, which are not sent back."""
        self._received = len(plan.prefill_text.encode())
        """Bytes of the prefill and all tokens so far."""
        self._decoder = Utf8Decoder(places=self._reader is not None)
        self._decoder.decode(plan.prefill_text.encode())

    def read(self, chunks: Sequence[TokenChunk]) -> list[Piece]:
        """The pieces that one or more ``chunks`` add, in order.

        Only the last chunk may end the answer, with the reason "stop" or "length".
        """
        last = chunks[-1]
        data, tokens, reason = last.data, last.tokens, last.finish_reason
        if len(chunks) > 1:
            data = b"".join([chunk.data for chunk in chunks])
            tokens = [token for chunk in chunks for token in chunk.tokens]
        text = self._decoder.decode(data, reason is not None)
        pieces: list[Piece]
        if self._reader is None:
            pieces = [Content(text, 0, tokens)]
        else:
            for token in tokens:
                self._waiting.append((self._received, token))
                self._received += len(token.data)
            found = self._reader.push(text)
            if reason is not None:
                found += self._reader.finish(cut=reason == "length")
            if self._prefill:
                found = [piece for each in found if (piece := self._after_prefill(each))]
            pieces = [self._with_tokens(piece) for piece in found]
        if self._confidence is not None:
            self._confidence.read(chunks, text, pieces)
        if self._spans is not None:
            self._spans.read(pieces)
        if self._custom:
            pieces = [self._with_input(piece) for piece in pieces]
        if not self._shows_reasoning:
            pieces = [each for each in pieces if not isinstance(each, Reasoning)]
        if chunks[0].prompt:
            pieces = [PromptTokens(chunks[0].prompt), *pieces]
        if reason is not None:
            pieces += self._measured()
        if self._origins is not None and (origins := self._origins.read(chunks)) is not None:
            pieces.append(origins)
        if reason is not None:
            assert reason in ("stop", "length")
            calls_whole = self._calls and not self._open_calls
            pieces.append(End("tool_calls" if calls_whole else reason, last.stopped_by.decode()))
        if self._fields is not None:
            pieces = self._fields.read(pieces)
        return pieces

    def _measured(self) -> list[Piece]:
        """The measurements of the values, which are reported at the end."""
        found = Measurements()
        spans = None if self._spans is None else self._spans.finish()
        if self._confidence is not None:
            scores = self._confidence.finish()
            by_place = {(each.call, each.pointer): each for each in spans or ()}
            for each in scores.entries:
                if each.what == "value":
                    each.span = by_place.get((each.call, each.pointer))
            if self._options.confidence:
                found.confidence = scores.entries
            found.inexact = scores.by_tokens
        if spans is not None and self._options.spans:
            found.spans = spans
        return [] if found == Measurements() else [found]

    def _after_prefill(self, piece: TextPiece) -> TextPiece | None:
        """The new part of a piece: the reader may have held back the end of the prefill."""
        if piece.start < self._prefill and isinstance(piece, Content | Reasoning):
            text = piece.text[self._prefill - piece.start :]
            return type(piece)(text, self._prefill) if text else None
        return piece

    def _with_tokens(self, piece: TextPiece) -> TextPiece:
        """``piece``; content gets its tokens, a call an id, and tokens of reasoning are counted."""
        start, end = self._decoder.bytes_before(piece.start), self._decoder.bytes_before(piece.end)
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
                return replace(piece, id=self._call_ids.new())
            case CallEnd():
                self._open_calls -= 1
        return piece

    def _with_input(self, piece: Piece) -> Piece:
        """``piece``; in a custom tool's call the input replaces the arguments."""
        match piece:
            case CallStart(name=name):
                self._input = InputReader() if name in self._custom else None
                return replace(piece, custom=self._input is not None)
            case CallArguments(text=text) if self._input is not None:
                return replace(piece, text=self._input.push(text), custom=True)
        return piece
