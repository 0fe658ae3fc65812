"""What is told of the values of an answer, as all APIs write it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.answer.pieces import (
    Alternative,
    Confidence,
    Confidences,
    Inexact,
    Measurement,
    Span,
    Spans,
    TokenByToken,
)
from app.http.openapi import Shape


def measured(piece: Measurement) -> dict[str, Any]:
    """What a choice tells of its values: a field and its list."""
    match piece:
        case Confidences(values=values):
            return {"confidence": [_entry(each) for each in values]}
        case Inexact(values=inexact):
            return {"inexact": [{**_pointed(each), "what": each.what} for each in inexact]}
        case Spans(values=spans):
            return {"spans": [{**_pointed(each), **_place(each)} for each in spans]}


def _pointed(value: Confidence | TokenByToken | Span) -> dict[str, Any]:
    call = {} if value.call is None else {"tool_call": value.call}
    return {**call, "pointer": value.pointer}


def _entry(value: Confidence) -> dict[str, Any]:
    entry = _pointed(value)
    if value.what != "container":
        entry[value.what] = value.which
    entry["probability"] = value.probability
    if value.mass is not None:
        entry["mass"] = value.mass
    if value.alternatives is not None:
        entry["alternatives"] = [_alternative(each) for each in value.alternatives]
    if value.tokens is not None:
        entry["tokens"] = value.tokens
    if value.span is not None:
        entry["span"] = _place(value.span)
    if value.least_likely is not None:
        least = value.least_likely
        token = least.token.decode(errors="replace")
        entry["least_likely"] = {"token": token, "probability": least.probability}
    return entry


def _place(span: Span) -> dict[str, Any]:
    return {"part": span.part, "start": span.start, "end": span.end}


def _alternative(each: Alternative) -> dict[str, Any]:
    return {each.what: each.which, "probability": each.probability}


class PromptPlace(Shape):
    """Where a value stands in the prompt; the first place, if there are several."""

    part: str
    """Which text: ``messages[1]``, ``input``, ``input[0]``."""
    start: int
    """In characters (Unicode code points) of that text."""
    end: int
    """Behind its last character."""


class ValueSpan(PromptPlace):
    """Where a value of the answer stands in the prompt."""

    tool_call: int = 0
    """Of a call's arguments: which call, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901)."""


class LeastLikelyToken(Shape):
    token: str
    probability: float


class ConfidenceAlternative(Shape):
    """One of ``value``, ``next``, ``type`` and ``other`` tells which."""

    value: Any = None
    next: str | int | None = None
    """The next key or index; null: the object or array ends."""
    type: str = ""
    """One of many values of this type, or of many keys."""
    other: int = 0
    """How many are left, which are told together."""
    probability: float


class ValueConfidence(Shape):
    """A value has ``value``, and what came next in an object or array ``next``."""

    tool_call: int = 0
    """Of a call's arguments: which call, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901)."""
    value: Any = None
    next: str | int | None = None
    probability: float
    mass: float = Field(default=0.0)
    alternatives: list[ConfidenceAlternative] = Field(default=[])
    tokens: int = 0
    span: PromptPlace | None = None
    """Of a string with x-verbatim: where it stands."""
    least_likely: LeastLikelyToken | None = None


class InexactChoice(Shape):
    """A choice that was to be drawn as a whole and was drawn token by token."""

    tool_call: int = 0
    """Of a call's arguments: which call, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901) to the value, or to the object or array."""
    what: Literal["value", "next"]
    """The value itself, or what came next in the object or array."""


class Measured(Shape):
    """What a choice tells of its values; where nothing was asked for, nothing."""

    confidence: list[ValueConfidence] = Field(default=[])
    inexact: list[InexactChoice] = Field(default=[])
    spans: list[ValueSpan] = Field(default=[])
