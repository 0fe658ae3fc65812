"""Answers in the form of chat completions: one object, or the chunks of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from app.answer.pieces import (
    CallArguments,
    CallStart,
    Content,
    End,
    Fields,
    Measurements,
    Piece,
    Reasoning,
)
from app.core.constraint import Vocabulary
from app.core.events import AnswerToken, Origins
from app.http.endpoint import Renderer
from app.http.models import ServedModel
from app.http.openapi import Shape
from app.http.renderers import ChunkRenderer, UnstreamedRenderer, Usage, head_of
from app.http.reports import (
    CompleteValue,
    Measured,
    TokenOrigins,
    TopLogprob,
    Warning,
    logprob_entries,
    measured,
    origins_entry,
)
from app.http.requests.fields import ServedTier, StreamOptions, served_tier
from app.serving.generation import Generation


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
    """Text that matches the tool's grammar, if it has one."""


class AnsweredCustomCall(Shape):
    id: str
    type: Literal["custom"]
    custom: AnsweredInput


class AssistantMessage(Shape):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[Any] = Field(max_length=0)
    reasoning_content: str = ""
    reasoning: str = ""
    """``reasoning_content`` again, for requests with ``reasoning`` or ``include_reasoning``."""
    tool_calls: list[AnsweredCall | AnsweredCustomCall] = Field(default=[], min_length=1)


class ChatChoice(Measured):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class _Head(Shape):
    id: str
    created: int
    model: str
    system_fingerprint: str
    service_tier: ServedTier


class ChatCompletion(_Head):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    warnings: list[Warning] = Field(default=[])
    """Missing if there are none."""


class FunctionDelta(Shape):
    name: str = ""
    arguments: str


class CallDelta(Shape):
    """A part of a call; ``id`` and the function's name come once."""

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
    reasoning: str = ""
    tool_calls: list[CallDelta | CustomCallDelta] = Field(default=[])


class ChunkChoice(Measured):
    """A choice in a chunk; reports on its values come in its last chunk."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"] | None
    fields: list[CompleteValue] = Field(default=[])
    """Values completed by the chunk before, if requested."""
    origins: TokenOrigins | None = None
    """Origins of new or changed tokens, if requested."""


class ChatCompletionChunk(_Head):
    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: Usage | None = None
    warnings: list[Warning] = Field(default=[])
    """In the last chunk with a choice; missing if there are none."""


def chat_renderer(
    generation: Generation,
    *,
    model: ServedModel,
    stream: StreamOptions | None,
    vocabulary: Vocabulary | None,
    reasoning_names: Sequence[str],
) -> Renderer:
    """``stream`` None: one object. ``vocabulary``: given if log-probabilities are requested.
    ``reasoning_names``: the fields that hold the reasoning."""
    kind = "chat.completion" if stream is None else "chat.completion.chunk"
    head = head_of(f"chatcmpl-{generation.request_id}", kind, model)
    head["service_tier"] = served_tier(generation)
    if stream is not None:
        return _Chunks(head, generation, stream, vocabulary, reasoning_names)
    choices = [_Choice(vocabulary, reasoning_names) for _ in range(generation.n)]
    return UnstreamedRenderer(head, generation, choices)


def _logprobs(
    tokens: Sequence[AnswerToken], vocabulary: Vocabulary | None
) -> dict[str, Any] | None:
    """The log-probabilities of content; without ``vocabulary`` they were not asked for."""
    if vocabulary is None:
        return None
    return {"content": logprob_entries(tokens, vocabulary), "refusal": None}


@dataclass(slots=True)
class _Choice:
    vocabulary: Vocabulary | None
    """Given if log-probabilities are requested."""
    reasoning_names: Sequence[str]
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[tuple[CallStart, list[str]]] = field(default_factory=list)
    """Each call with the pieces of its arguments."""
    tokens: list[AnswerToken] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    """Reports on the values."""
    finish_reason: str | None = None

    def add(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            match piece:
                case Content(text=text, tokens=tokens):
                    self.content.append(text)
                    self.tokens += tokens
                case Reasoning(text=text):
                    self.reasoning.append(text)
                case CallStart():
                    self.calls.append((piece, []))
                case CallArguments(text=text):
                    self.calls[-1][1].append(text)
                case Measurements():
                    self.measured |= measured(piece)
                case End(reason=reason):
                    self.finish_reason = reason

    def wire(self, index: int) -> dict[str, Any]:
        content = "".join(self.content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if self.calls and not content else content,
            "refusal": None,
            "annotations": [],
        }
        if self.reasoning:
            message |= dict.fromkeys(self.reasoning_names, "".join(self.reasoning))
        if self.calls:
            message["tool_calls"] = [
                {"id": call.id, **_called(call.custom, "".join(arguments), call.name)}
                for call, arguments in self.calls
            ]
        return {
            "index": index,
            "message": message,
            "logprobs": _logprobs(self.tokens, self.vocabulary),
            "finish_reason": self.finish_reason,
            **self.measured,
        }


class _Chunks(ChunkRenderer):
    def __init__(
        self,
        head: dict[str, Any],
        generation: Generation,
        options: StreamOptions,
        vocabulary: Vocabulary | None,
        reasoning_names: Sequence[str],
    ) -> None:
        super().__init__(head, generation, options)
        self._vocabulary = vocabulary
        self._reasoning_names = reasoning_names
        self._measured: dict[int, dict[str, Any]] = {}
        """Reports on the values of each choice, until its last chunk."""

    def begin(self) -> bytes:
        """Each choice's first chunk, which has the role."""
        introduction = {"role": "assistant", "content": "", "refusal": None}
        return b"".join([self._event(_wire(i, introduction)) for i in range(self._generation.n)])

    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        return b"".join([self._piece(index, piece) for piece in pieces])

    def _piece(self, index: int, piece: Piece) -> bytes:
        """``id`` and ``name`` come once, with a call's first chunk."""
        match piece:
            case Content(text=text, tokens=tokens):
                logprobs = _logprobs(tokens, self._vocabulary)
                if not text and not (logprobs and logprobs["content"]):
                    return b""
                return self._event(_wire(index, {"content": text}, logprobs))
            case Reasoning(text=text):
                return self._event(_wire(index, dict.fromkeys(self._reasoning_names, text)))
            case CallStart(index=number, id=id):
                call = {"index": number, "id": id, **_called(piece.custom, "", piece.name)}
                return self._event(_wire(index, {"tool_calls": [call]}))
            case CallArguments(index=number, text=text, custom=custom):
                if custom and not text:
                    return b""
                call = {"index": number, **_called(custom, text)}
                return self._event(_wire(index, {"tool_calls": [call]}))
            case Fields(values=whole):
                return self._event(_wire(index, {}), whole)
            case Origins():
                entry = origins_entry(piece, self._vocabulary)
                return self._event(_wire(index, {}) | {"origins": entry})
            case Measurements():
                self._measured.setdefault(index, {}).update(measured(piece))
            case End(reason=reason):
                last = _wire(index, {}, finish_reason=reason)
                return self._last(last | self._measured.pop(index, {}))
        return b""


def _called(custom: bool, text: str, name: str | None = None) -> dict[str, Any]:
    """A call of a function or of a custom tool; its type and name come once, at its beginning."""
    if name is None:
        return {"custom": {"input": text}} if custom else {"function": {"arguments": text}}
    if custom:
        return {"type": "custom", "custom": {"name": name, "input": text}}
    return {"type": "function", "function": {"name": name, "arguments": text}}


def _wire(
    index: int,
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
