"""The shapes of completions, whole and in chunks, as ``/openapi.json`` tells them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.http.choices import Usage
from app.http.confidence import ValueConfidence, ValueSpan
from app.http.fields import WholeValue
from app.http.openapi import Shape


class CompletionLogprobs(Shape):
    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class CompletionChunkChoice(Shape):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    confidence: list[ValueConfidence] = Field(default=[])
    """With the choice's last chunk, where it is asked for; so are ``spans``."""
    spans: list[ValueSpan] = Field(default=[])
    fields: list[WholeValue] = Field(default=[])
    """Values that are whole with this chunk of a stream, where that was asked for."""


class CompletionChoice(CompletionChunkChoice):
    finish_reason: Literal["stop", "length"]


class _Head(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str


class Completion(_Head):
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunk(_Head):
    choices: list[CompletionChunkChoice]
    usage: Usage | None = None
