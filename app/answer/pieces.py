"""What an answer consists of, as HTTP is told: pieces, in the order of the text.

Those that have text are slices of the answer and never overlap; ``start`` and ``end`` are in
characters of the whole answer.

What each step makes for each answer is not frozen: that would take three times as long to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.core.events import AnswerToken

EndReason = Literal["stop", "length", "tool_calls"]


@dataclass(slots=True)
class _Text:
    text: str
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(slots=True)
class Content(_Text):
    """Text of the answer itself."""

    tokens: Sequence[AnswerToken] = ()
    """Tokens that begin in it. The text of the last ones may be held back still."""


@dataclass(slots=True)
class Reasoning(_Text):
    """Text of the reasoning."""


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of the function ``name``, the answer's ``index``-th from 0; spans the marks too."""

    index: int
    name: str
    start: int = 0
    end: int = 0
    id: str = ""
    """Made by the server, in the form that the model's chat template takes back."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A part of the JSON text of a call's arguments."""

    index: int
    text: str
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call is whole; spans the mark after its arguments."""

    index: int
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """The answer is over: the last piece, and only that."""

    reason: EndReason
    stopped_by: str = ""
    """The stop string that ended it."""


TextPiece = Content | Reasoning | CallStart | CallArguments | CallEnd
"""A piece that has a place in the text."""

Piece = TextPiece | End


@dataclass(slots=True)
class Delta:
    """What was added to one choice of a request."""

    index: int
    """Which of the choices."""
    pieces: Sequence[Piece]
