"""The shapes of chat completions, whole and in chunks, as ``/openapi.json`` tells them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.http.choices import Usage
from app.http.confidence import Measured
from app.http.fields import WholeValue
from app.http.openapi import Shape
from app.http.origins import TokenOrigins
from app.http.relaxed import Warning


class TopLogprob(Shape):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Shape):
    content: list[TokenLogprob]
    refusal: None


class AnsweredFunction(Shape):
    name: str
    arguments: str
    """JSON that is valid against the tool's parameters."""


class AnsweredCall(Shape):
    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnsweredInput(Shape):
    name: str
    input: str
    """A text of the tool's grammar, where it has one."""


class AnsweredCustomCall(Shape):
    id: str
    type: Literal["custom"]
    custom: AnsweredInput


class AnsweredMessage(Shape):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[Any] = Field(max_length=0)
    reasoning_content: str = ""
    tool_calls: list[AnsweredCall | AnsweredCustomCall] = Field(default=[], min_length=1)


class ChatChoice(Measured):
    index: int
    message: AnsweredMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class _Head(Shape):
    id: str
    created: int
    model: str
    system_fingerprint: str
    service_tier: Literal["default"]


class ChatCompletion(_Head):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    warnings: list[Warning] = Field(default=[])
    """Where answers were not held to all of a schema."""


class FunctionDelta(Shape):
    name: str = ""
    arguments: str


class CallDelta(Shape):
    """``id`` and the function's name come once."""

    index: int
    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionDelta


class InputDelta(Shape):
    name: str = ""
    input: str


class CustomCallDelta(Shape):
    index: int
    id: str = ""
    type: Literal["custom"] = "custom"
    custom: InputDelta


class Delta(Shape):
    role: Literal["assistant"] = "assistant"
    content: str = ""
    refusal: None = None
    reasoning_content: str = ""
    tool_calls: list[CallDelta | CustomCallDelta] = Field(default=[])


class ChunkChoice(Measured):
    """What was measured is in the last chunk of the choice."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"] | None
    fields: list[WholeValue] = Field(default=[])
    """Values that are whole with the chunk before, where that was asked for."""
    origins: TokenOrigins | None = None
    """Where tokens came from that are new or changed, where that was asked for."""


class ChatCompletionChunk(_Head):
    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: Usage | None = None
    warnings: list[Warning] = Field(default=[])
    """In the last chunk with a choice, where answers were not held to all of a schema."""
