"""The shapes of responses and their events, as ``/openapi.json`` tells them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.http.confidence import Measured
from app.http.openapi import Shape
from app.http.relaxed import Warning


class ResponsesInputDetails(Shape):
    cached_tokens: int
    cache_write_tokens: int


class ResponsesOutputDetails(Shape):
    reasoning_tokens: int
    leapt_tokens: int
    drafted_tokens: int
    held_tokens: int
    forward_passes: int


class ResponsesUsage(Shape):
    input_tokens: int
    input_tokens_details: ResponsesInputDetails
    output_tokens: int
    output_tokens_details: ResponsesOutputDetails
    total_tokens: int


class OutputItem(BaseModel):
    """A message, a call, or reasoning; its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    id: str
    type: Literal["message", "function_call", "custom_tool_call", "reasoning"]
    status: Literal["completed", "incomplete"] = "completed"


class IncompleteDetails(Shape):
    reason: Literal["max_output_tokens"]


class ResponseObject(Measured):
    """Beside these it repeats the settings of its request."""

    model_config = ConfigDict(extra="allow")
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    usage: ResponsesUsage
    warnings: list[Warning] = Field(default=[])
    """Where answers were not held to all of a schema."""


class DeletedResponse(Shape):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItem(BaseModel):
    """Its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    id: str
    type: str


class InputItems(Shape):
    object: Literal["list"]
    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class CountedInput(Shape):
    object: Literal["response.input_tokens"]
    input_tokens: int


class ResponseEvent(BaseModel):
    """Its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    type: str
    sequence_number: int
