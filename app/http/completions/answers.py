"""The shapes of completions, whole and in chunks, as ``/openapi.json`` tells them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.http.choices import Usage
from app.http.confidence import Measured
from app.http.fields import WholeValue
from app.http.openapi import Shape
from app.http.origins import TokenOrigins
from app.http.relaxed import Warning


class CompletionLogprobs(Shape):
    """With ``echo`` the first of each list is that of the prompt's first token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class _Choice(Measured):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    fields: list[WholeValue] = Field(default=[])
    """Values that are whole with this chunk of a stream, where that was asked for."""


class CompletionChunkChoice(_Choice):
    """What was measured is in the last chunk of the choice."""

    origins: TokenOrigins | None = None
    """Where tokens came from that are new or changed, where that was asked for."""


class CompletionChoice(_Choice):
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
    warnings: list[Warning] = Field(default=[])
    """Where answers were not held to all of a schema."""


class CompletionChunk(_Head):
    choices: list[CompletionChunkChoice]
    usage: Usage | None = None
    warnings: list[Warning] = Field(default=[])
    """In the last chunk with a choice, where answers were not held to all of a schema."""
