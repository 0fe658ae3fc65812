"""Confidence as both APIs write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from app.answer.pieces import Alternative, Confidence, Span
from app.http.openapi import Shape


def confidence_entries(values: Sequence[Confidence]) -> list[dict[str, Any]]:
    """The list of a choice."""
    return [_entry(each) for each in values]


def _entry(value: Confidence) -> dict[str, Any]:
    entry: dict[str, Any] = {} if value.call is None else {"tool_call": value.call}
    entry["pointer"] = value.pointer
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


def span_entries(values: Sequence[Span]) -> list[dict[str, Any]]:
    """The list of where values stand in the prompt, of a choice."""
    calls: list[dict[str, Any]] = [
        {} if value.call is None else {"tool_call": value.call} for value in values
    ]
    return [
        {**call, "pointer": value.pointer, **_place(value)}
        for call, value in zip(calls, values, strict=True)
    ]


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
