"""The choices of one request while they come: their text taken apart, and why they ended."""

from __future__ import annotations

import secrets
import string
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from app.answer.formats import ChatFormat
from app.answer.prompt import Opening
from app.answer.reader import AnswerReader, CallEnd, CallStart, Content, Piece, Reasoning
from app.core.events import AnswerToken, TextChunk

Ending = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one chunk added to one choice."""

    index: int
    pieces: Sequence[Piece]
    tokens: Sequence[AnswerToken]
    """Tokens of the content; those of reasoning, calls and marks are left out."""
    finish_reason: Ending | None = None


class CallIds:
    """Makes ids of tool calls that the model's chat template takes back."""

    def __init__(self, length: int | None) -> None:
        """``length``: letters and digits alone, so many; None: OpenAI's form."""
        self._length = length

    def new(self) -> str:
        if self._length is None:
            return f"call_{secrets.token_hex(12)}"
        alphabet = string.ascii_letters + string.digits
        return "".join(secrets.choice(alphabet) for _ in range(self._length))


@dataclass(frozen=True, slots=True)
class Expected:
    """What answers may have besides content."""

    tools: Collection[str] = ()
    """Names of the functions that may be called."""
    content_first: bool = True
    """Whether calls may follow content: not where the content has a constraint of its own."""


class ChoiceReaders:
    """One reader for each choice. ``openings``: whether a choice begins inside its reasoning."""

    def __init__(self, format: ChatFormat, openings: Sequence[Opening], expected: Expected) -> None:
        self.call_ids = CallIds(format.tools.id_length)
        self._choices = [_ChoiceReader(format, opening, expected) for opening in openings]

    def __len__(self) -> int:
        return len(self._choices)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the reasoning of all choices so far."""
        return sum(choice.reasoning_tokens for choice in self._choices)

    def read(self, chunk: TextChunk) -> Reading:
        """What ``chunk`` adds. Text that may yet turn out to be a mark waits for what follows."""
        return self._choices[chunk.index].read(chunk)


class _ChoiceReader:
    """Tokens are told apart by the piece in which their first byte lies::

    raw text   | reasoning | mark | content     | held back |
    tokens     |   |    |   |    |   |    |   |   |
    """

    def __init__(self, format: ChatFormat, opening: Opening, expected: Expected) -> None:
        self.reasoning_tokens = 0
        self._reader: AnswerReader | None = None
        if expected.tools or (format.reasoning is not None and opening != "closed"):
            self._reader = AnswerReader(
                format,
                opening=opening,
                tools=expected.tools,
                content_first=expected.content_first,
            )
        self._calls = 0
        self._open_calls = 0
        self._waiting: deque[tuple[int, AnswerToken]] = deque()
        """Tokens that no piece has reached yet, and where their first bytes are."""
        self._received = 0
        """Bytes of all tokens so far."""
        self._text = ""
        """The raw text that no piece has reached yet."""
        self._told = 0
        """Characters of raw text before it."""
        self._told_bytes = 0

    def read(self, chunk: TextChunk) -> Reading:
        assert chunk.finish_reason in (None, "stop", "length")
        if self._reader is None:  # nothing but content can come, and nothing is looked for
            plain = [Content(chunk.text)] if chunk.text else []
            return Reading(chunk.index, plain, chunk.tokens, chunk.finish_reason)
        pieces = self._reader.push(chunk.text)
        if chunk.finish_reason is not None:
            pieces += self._reader.finish()
        for piece in pieces:
            self._calls += isinstance(piece, CallStart)
            self._open_calls += isinstance(piece, CallStart) - isinstance(piece, CallEnd)
        ending: Ending | None = chunk.finish_reason
        if ending is not None and self._calls and not self._open_calls:
            ending = "tool_calls"
        return Reading(chunk.index, pieces, self._tell(chunk, pieces), ending)

    def _tell(self, chunk: TextChunk, pieces: Sequence[Piece]) -> list[AnswerToken]:
        """The tokens of content that ``pieces`` have reached; counts those of reasoning."""
        self._text += chunk.text
        for token in chunk.tokens:
            self._waiting.append((self._received, token))
            self._received += len(token.data)
        content = []
        for piece in pieces:
            start, end = self._bytes_before(piece.start), self._bytes_before(piece.end)
            while self._waiting and self._waiting[0][0] < end:
                position, token = self._waiting.popleft()
                if isinstance(piece, Reasoning):
                    self.reasoning_tokens += 1
                elif isinstance(piece, Content) and position >= start:
                    content.append(token)
        return content

    def _bytes_before(self, position: int) -> int:
        """Where a character is in bytes; asked for in ascending order."""
        passed, self._text = (
            self._text[: position - self._told],
            self._text[position - self._told :],
        )
        self._told = position
        self._told_bytes += len(passed.encode())
        return self._told_bytes
