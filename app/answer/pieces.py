"""The pieces of an answer for HTTP, in the order of the text.

They never overlap; ``start`` and ``end`` are in characters of the whole answer. Content and
reasoning are slices of it; arguments are JSON, even if the model writes another notation.

Classes instantiated in every step for every answer are not frozen: that would triple the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.core.events import AnswerToken, Origins

AlternativeKind = Literal["value", "next", "type", "other"]
"""A whole value; the next member of the container; one of many of a type; all that are left."""


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
    custom: bool = False
    """Whether it is the call of a custom tool, which has an input and no arguments."""
    in_json: bool = True
    """Whether the arguments stand in the answer as JSON, from ``end`` on."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A part of the JSON text of a call's arguments, or of the input of a custom tool; spans the
    text for it in the answer."""

    index: int
    text: str
    start: int = 0
    end: int = 0
    custom: bool = False


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call is whole; spans the mark after its arguments."""

    index: int
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Alternative:
    """A continuation that was not chosen."""

    probability: float
    what: AlternativeKind
    which: Any
    """The value; the next key, the index, or None for the end; the type; the number of the rest."""


@dataclass(frozen=True, slots=True)
class LeastLikely:
    """The token of a value that was least likely."""

    token: bytes
    probability: float


@dataclass(slots=True)
class Confidence:
    """One value of an answer, or what came next in an object or array."""

    pointer: str
    """JSON Pointer (RFC 6901) to the value, or to the object or array."""
    what: Literal["value", "next", "container"]
    which: Any = None
    """The value; the next key, index, or None for the end."""
    logprob: float = 0.0
    mass: float | None = None
    """None: it was not scored, or other ways exist that are not listed."""
    alternatives: Sequence[Alternative] | None = None
    """The likeliest first; None: it was not scored."""
    tokens: int | None = None
    """Number of tokens the model chose, if the probability is a product over them."""
    least_likely: LeastLikely | None = None
    call: int | None = None
    """Index of the call, for a value in arguments."""
    span: PromptSpan | None = None
    """Position in the prompt, for a string that has to be quoted from it."""

    @property
    def probability(self) -> float:
        return math.exp(self.logprob)


@dataclass(frozen=True, slots=True)
class TokenByToken:
    """A choice that was to be drawn as a whole and was drawn token by token."""

    pointer: str
    """JSON Pointer (RFC 6901) to the value, or to the object or array."""
    what: Literal["value", "next"]
    """The value itself, or what came next in the object or array."""
    call: int | None = None
    """Index of the call, for a value in arguments."""


@dataclass(frozen=True, slots=True)
class PromptSpan:
    """Position of a value of the answer in the prompt: the first, if several."""

    pointer: str
    """JSON Pointer (RFC 6901) to the value."""
    part: str
    """Which text of the prompt: ``messages[1]``."""
    start: int
    end: int
    """In characters (Unicode code points) of that text, the end not included."""
    call: int | None = None
    """Index of the call, for a value in arguments."""


@dataclass(slots=True)
class Measurements:
    """Measurements of the values of an answer, in the order of the text: sent once, before the
    end, if requested."""

    confidence: Sequence[Confidence] | None = None
    """Confidence in each value."""
    inexact: Sequence[TokenByToken] = ()
    """Choices that were drawn token by token although exact ones were requested."""
    spans: Sequence[PromptSpan] | None = None
    """Positions of values in the prompt."""


@dataclass(slots=True)
class FieldValue:
    """A complete value of a JSON answer."""

    pointer: str
    """JSON Pointer (RFC 6901)."""
    text: bytes | None
    """Text in the answer; None: it is too large, and only its parts were reported."""
    call: int | None = None
    """Index of the call, for a value in arguments."""


@dataclass(slots=True)
class Fields:
    """Values that the preceding piece completed; sent if requested."""

    values: Sequence[FieldValue]
    """In the order of their ends."""


@dataclass(slots=True)
class PromptTokens:
    """The tokens of the prompt with their log-probabilities: the first piece, if requested."""

    tokens: Sequence[AnswerToken]
    """The log-probability of the first token is meaningless."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the answer: always the last piece."""

    reason: Literal["stop", "length", "tool_calls"]
    stopped_by: str = ""
    """The stop string that ended it."""


def pointer_below(pointer: str, member: str | int) -> str:
    """JSON Pointer (RFC 6901) to a member or an item of the value at ``pointer``."""
    return f"{pointer}/{str(member).replace('~', '~0').replace('/', '~1')}"


TextPiece = Content | Reasoning | CallStart | CallArguments | CallEnd
"""A piece that has a place in the text."""

Piece = TextPiece | Fields | Origins | PromptTokens | Measurements | End
