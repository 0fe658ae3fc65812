"""Responses in the words of their API: whole, or as the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from app.answer.pieces import (
    Confidences,
    Delta,
    End,
    Fields,
    FieldValue,
    Inexact,
    PromptTokens,
    Spans,
)
from app.core.constraint import Vocabulary
from app.core.errors import QueueFull, RequestError
from app.core.events import Origins
from app.http.endpoint import Renderer
from app.http.errors import envelope
from app.http.models import ServedModel
from app.http.openapi import Shape
from app.http.reports import (
    Measured,
    Warning,
    measured,
    merged,
    origins_entry,
    token_sources,
    warnings_of,
    with_fields,
)
from app.http.requests.constraints import JsonSchemaResponse
from app.http.requests.generation import served_tier
from app.http.requests.wire import Other
from app.http.responses.output import WHOLE, Ended, Event, Namespaces, OutputBuilder
from app.http.responses.wire import (
    FunctionToolParam,
    Namespace,
    ResponsesCustomTool,
    ResponsesRequest,
)
from app.serving.generation import Generation, Usage


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


def responses_renderer(
    wire: ResponsesRequest,
    request_id: str,
    model: ServedModel,
    vocabulary: Vocabulary | None,
    namespaces: Namespaces,
    *,
    store: bool,
) -> Callable[[Generation], Renderer]:
    """What answers ``wire``, once there is a generation.

    ``vocabulary`` is given where log-probabilities are asked for; ``store``: it is kept.
    """

    def renderer(generation: Generation) -> Renderer:
        head = {
            "id": f"resp_{request_id}",
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model.id,
            "output": [],
            "usage": None,
            "store": store,
            **_settings(wire),
            "service_tier": served_tier(generation),
        }
        output = OutputBuilder(request_id, vocabulary, namespaces)
        if wire.stream:
            return _Events(head, output, generation, vocabulary)
        return _Whole(head, output, generation)

    return renderer


class _Whole(Renderer):
    """A whole response as one object."""

    def __init__(self, head: dict[str, Any], output: OutputBuilder, generation: Generation) -> None:
        """``head``: the response before anything of it has come."""
        self._head = head
        self._output = output
        self._generation = generation
        self._status: Ended = "completed"
        self._measured: dict[str, Any] = {}
        """What is told of the values of the answer."""
        self._origins: Origins | None = None
        """Of tokens that no event has told yet."""

    def chunk(self, delta: Delta) -> bytes:
        self._add(delta)
        return b""

    def end(self) -> bytes:
        self.response = self._response()
        return to_json(self.response)

    def _add(self, delta: Delta) -> list[Event]:
        """The events of ``delta``."""
        events: list[Event] = []
        for piece in delta.pieces:
            if isinstance(piece, End):
                self._status = "incomplete" if piece.reason == "length" else "completed"
                events += self._output.end(self._status)
            elif isinstance(piece, Origins):
                self._origins = merged(self._origins, piece)
            elif isinstance(piece, Fields):
                events.append(self._output.whole(piece.values))
            elif isinstance(piece, Confidences | Inexact | Spans):
                self._measured |= measured(piece)
            elif not isinstance(piece, PromptTokens):
                events += self._output.add(piece)
        return events

    def _response(self) -> dict[str, Any]:
        """The response that has ended."""
        complete = self._status == "completed"
        return {
            **self._head,
            "status": self._status,
            "completed_at": int(time.time()) if complete else None,
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "output": self._output.items,
            "usage": _usage(self._generation.usage()),
            **self._measured,
            **warnings_of(self._generation),
        }


class _Events(_Whole):
    """The same as server-sent events, which are numbered."""

    _number = 0

    def __init__(
        self,
        head: dict[str, Any],
        output: OutputBuilder,
        generation: Generation,
        vocabulary: Vocabulary | None,
    ) -> None:
        super().__init__(head, output, generation)
        self._vocabulary = vocabulary

    def begin(self) -> bytes:
        steps = ("response.created", "response.in_progress")
        return self._write({"type": step, "response": self._head} for step in steps)

    def chunk(self, delta: Delta) -> bytes:
        return self._write(self._with_origins(self._add(delta)))

    def end(self) -> bytes:
        self.response = self._response()
        event = {"type": f"response.{self._status}", "response": self.response}
        return self._write(self._with_origins([event]))

    def _with_origins(self, events: list[Event]) -> list[Event]:
        """``events``, the last of which tells of the tokens that came with them."""
        if events and self._origins is not None:
            events[-1]["origins"] = origins_entry(self._origins, self._vocabulary)
            self._origins = None
        return events

    def fail(self, error: Exception) -> bytes:
        told = envelope(error)["error"]
        # The API's reference has the error's fields beside the type, OpenAI's own server has
        # them under ``error``, and clients look in either place.
        event = {"type": "error", **{key: told[key] for key in ("code", "message", "param")}}
        failure = {"code": _failure_code(error), "message": told["message"]}
        open_items = self._output.end("incomplete")
        response = {
            **self._head, "status": "failed", "output": self._output.items, "error": failure
        }  # fmt: skip
        return (b"" if self._number else self.begin()) + self._write(
            [
                *open_items,
                {**event, "error": told},
                {"type": "response.failed", "response": response},
            ]
        )

    def _write(self, events: Iterable[Event]) -> bytes:
        return b"".join([self._one(event) for event in events])

    def _one(self, event: Event) -> bytes:
        event["sequence_number"] = self._number
        self._number += 1
        whole: Sequence[FieldValue] = event.pop(WHOLE, ())
        data = to_json(event)
        if whole:
            data = with_fields(data, whole)
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), data)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            **token_sources(usage),
        },
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _failure_code(error: Exception) -> str:
    """One of the codes that the API has for responses that failed."""
    match error:
        case RequestError():
            return "invalid_prompt"
        case QueueFull():
            return "rate_limit_exceeded"
    return "server_error"


def _settings(wire: ResponsesRequest) -> dict[str, Any]:
    """What a response says of its request, with the defaults where nothing was asked for."""
    reasoning = wire.reasoning
    choice = wire.tool_choice
    return {
        "background": False,
        "instructions": wire.instructions,
        "max_output_tokens": wire.max_output_tokens,
        "max_tool_calls": wire.max_tool_calls,
        "metadata": wire.metadata or {},
        "parallel_tool_calls": wire.parallel_tool_calls is not False,
        "previous_response_id": wire.previous_response_id,
        "prompt_cache_key": wire.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "safety_identifier": wire.safety_identifier,
        "temperature": 1.0 if wire.temperature is None else wire.temperature,
        "text": {"format": _format(wire), "verbosity": "medium"},
        "tool_choice": (
            choice or "auto"
            if isinstance(choice, str | None)
            else choice.model_dump(exclude_none=True)
        ),
        "tools": [_tool(tool) for tool in wire.tools or () if not isinstance(tool, Other)],
        "top_logprobs": wire.top_logprobs or 0,
        "top_p": 1.0 if wire.top_p is None else wire.top_p,
        "truncation": "disabled",
        "user": wire.user,
    }


def _format(wire: ResponsesRequest) -> dict[str, Any]:
    asked = wire.text.format if wire.text else None
    if asked is None:
        return {"type": "text"}
    shown = asked.model_dump(by_alias=True, exclude_none=True)
    if isinstance(asked, JsonSchemaResponse) and asked.inner is not None:
        del shown["json_schema" if asked.json_schema else "schema"]
        shown |= asked.inner.model_dump(by_alias=True, exclude_none=True)
        shown["strict"] = asked.inner.strict is not False
    return shown


def _tool(tool: FunctionToolParam | ResponsesCustomTool | Namespace) -> dict[str, Any]:
    shown = {"type": tool.type, "name": tool.name, "description": tool.description}
    match tool:
        case Namespace(description=description, tools=tools):
            inner = [_tool(each) for each in tools if not isinstance(each, Other)]
            return shown | {"description": description or "", "tools": inner}
        case ResponsesCustomTool(format=format):
            return shown | {"format": format.model_dump() if format else {"type": "text"}}
    return shown | {"parameters": tool.parameters, "strict": tool.strict is not False}
