"""The shapes of messages and of their events, as ``/openapi.json`` tells them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.http.confidence import Measured
from app.http.openapi import Shape
from app.http.relaxed import Warning

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessagesOutputDetails(Shape):
    thinking_tokens: int
    leapt_tokens: int
    drafted_tokens: int
    held_tokens: int
    forward_passes: int


class MessagesUsage(Shape):
    input_tokens: int
    """Those that were not found in the cache."""
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: MessagesOutputDetails
    service_tier: Literal["standard"]


class ContentBlock(BaseModel):
    """Text, thinking or the use of a tool; its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    type: Literal["text", "thinking", "tool_use"]


class AnsweredMessage(Measured):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessagesUsage
    warnings: list[Warning] = Field(default=[])
    """Where answers were not held to all of a schema."""


class MessageEvent(BaseModel):
    """Its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    type: Literal[
        "message_start", "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip


class CountedTokens(Shape):
    input_tokens: int
