"""Answers in the form of the Messages API: one message, or the events of a stream.

A block at a time::

    message_start  block_start delta delta ... block_stop  block_start ...  message_delta  stop
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json

from app.answer.pieces import (
    CallArguments,
    CallStart,
    Content,
    End,
    Fields,
    FieldValue,
    Piece,
    Reasoning,
)
from app.core.request import ServiceTier
from app.http.endpoint import Renderer
from app.http.errors import ANTHROPIC, envelope
from app.http.models import ServedModel
from app.http.openapi import Shape
from app.http.renderers import ListRenderer, named_event
from app.http.reports import Measured, TokenSources, Warning, token_sources, with_fields
from app.serving.generation import Generation

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessagesOutputDetails(TokenSources):
    thinking_tokens: int


class MessagesUsage(Shape):
    input_tokens: int
    """Prompt tokens that were not found in the cache."""
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: MessagesOutputDetails
    service_tier: Literal["standard", "priority", "batch"]


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
    """Missing if there are none."""


class MessageEvent(BaseModel):
    """Its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    type: Literal[
        "message_start", "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip


class CountedTokens(Shape):
    input_tokens: int


Block = dict[str, Any]

_TIERS = {ServiceTier.PRIORITY: "priority", ServiceTier.BATCH: "batch"}
_DELTA = "content_block_delta"
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def messages_renderer(
    generation: Generation, *, model: ServedModel, stream: bool, omits_thinking: bool
) -> Renderer:
    head: dict[str, Any] = {
        "id": f"msg_{generation.request_id}",
        "type": "message",
        "role": "assistant",
        "model": model.id,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    return (_Events if stream else _Unstreamed)(head, generation, omits_thinking=omits_thinking)


class _Unstreamed(ListRenderer):
    """A whole message as one object."""

    def __init__(
        self, head: dict[str, Any], generation: Generation, *, omits_thinking: bool
    ) -> None:
        super().__init__(head, generation)
        self._omits_thinking = omits_thinking
        self._blocks: list[tuple[Block, list[str]]] = []
        """Blocks as they began, each with its pieces of text."""
        self._end = End("stop")

    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        for piece in pieces:
            self._take(piece)
        return b""

    def end(self) -> bytes:
        content = [_finished(block, "".join(texts)) for block, texts in self._blocks]
        ended = {"content": content, **self._stopped(), "usage": self._usage()}
        return to_json({**self._head, **ended, **self._reports()})

    def _take(self, piece: Piece) -> tuple[Block | None, str]:
        """The block that ``piece`` begins, if it does, and the text it adds to the open one."""
        if isinstance(piece, End):
            self._end = piece
        self._note(piece)
        if (begun := self._begun(piece)) is not None:
            self._blocks.append((begun, []))
        text = piece.text if isinstance(piece, Content | Reasoning | CallArguments) else ""
        if isinstance(piece, Reasoning) and self._omits_thinking:
            text = ""
        if text:
            self._blocks[-1][1].append(text)
        return begun, text

    def _begun(self, piece: Piece) -> Block | None:
        """The block that begins with ``piece``; None where one goes on or there is no text."""
        open_type = self._blocks[-1][0]["type"] if self._blocks else None
        match piece:
            case Content(text=text) if text and open_type != "text":
                return {"type": "text", "text": ""}
            case Reasoning(text=text) if text and open_type != "thinking":
                return {"type": "thinking", "thinking": "", "signature": ""}
            case CallStart(id=id, name=name):
                return {"type": "tool_use", "id": id, "name": name, "input": {}}
        return None

    def _stopped(self) -> dict[str, Any]:
        by = self._end.stopped_by
        reason = _STOP_REASONS[self._end.reason]
        if by and reason == "end_turn":
            reason = "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": by or None}

    def _usage(self) -> dict[str, Any]:
        usage = self._generation.usage()
        return {
            "input_tokens": usage.prompt_tokens - usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {
                "thinking_tokens": usage.reasoning_tokens,
                **token_sources(usage),
            },
            "service_tier": _TIERS.get(self._generation.tier, "standard"),
        }


class _Events(_Unstreamed):
    """A message as server-sent events."""

    ping = b'event: ping\ndata: {"type": "ping"}\n\n'

    def begin(self) -> bytes:
        return _event("message_start", message={**self._head, "usage": self._usage()})

    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        events = b""
        for piece in pieces:
            begun, text = self._take(piece)
            number = len(self._blocks) - 1
            if isinstance(piece, Fields):
                events += self._complete(number, piece.values)
            if begun is not None:
                events += _stop(number - 1)
                events += _event("content_block_start", index=number, content_block=begun)
            if text:
                events += _event(_DELTA, index=number, delta=_delta(piece, text))
        if events and self._origins is not None:  # with the last event
            reports = to_json(self._take_origins())
            events = events.removesuffix(b"}\n\n") + b"," + reports[1:] + b"\n\n"
        return events

    def _complete(self, number: int, values: Sequence[FieldValue]) -> bytes:
        """An empty delta with the values that the event before completed."""
        kind = CallArguments(0, "") if self._blocks[-1][0]["type"] == "tool_use" else Content("")
        delta = {"type": _DELTA, "index": number, "delta": _delta(kind, "")}
        return named_event(_DELTA, with_fields(to_json(delta), values))

    def end(self) -> bytes:
        usage = self._usage()
        del usage["service_tier"]
        reports = self._reports() | self._take_origins()
        return (
            _stop(len(self._blocks) - 1)
            + _event("message_delta", delta=self._stopped(), usage=usage, **reports)
            + _event("message_stop")
        )

    def fail(self, error: Exception) -> bytes:
        return b"event: error\ndata: " + to_json(envelope(error, ANTHROPIC)) + b"\n\n"


def _delta(piece: Piece, text: str) -> dict[str, str]:
    match piece:
        case Reasoning():
            return {"type": "thinking_delta", "thinking": text}
        case CallArguments():
            return {"type": "input_json_delta", "partial_json": text}
    return {"type": "text_delta", "text": text}


def _stop(number: int) -> bytes:
    """The end of the block ``number``, where there is one."""
    return b"" if number < 0 else _event("content_block_stop", index=number)


def _finished(block: Block, text: str) -> Block:
    """``block`` with its complete text. Arguments that were cut are parsed as far as they go."""
    match block["type"]:
        case "tool_use":
            return {**block, "input": from_json(text, allow_partial=True) if text else {}}
        case "thinking":
            return {**block, "thinking": text}
    return {**block, "text": text}


def _event(type: str, **fields: Any) -> bytes:
    return named_event(type, to_json({"type": type, **fields}))
