"""Answers in the form of the Responses API: one object, or the events of a stream.

An item at a time::

    output_item.added  [content_part.added]  delta delta ... done  [content_part.done]  item.done
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from app.answer.pieces import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Fields,
    FieldValue,
    Piece,
    Reasoning,
)
from app.core.constraint import Vocabulary
from app.core.errors import QueueFull, RequestError
from app.core.events import AnswerToken, AnswerUsage
from app.http.endpoint import Renderer
from app.http.errors import envelope
from app.http.openapi import Shape
from app.http.renderers import ListRenderer, named_event
from app.http.reports import (
    Measured,
    TokenSources,
    Warning,
    logprob_entries,
    token_sources,
    with_fields,
)
from app.http.requests.fields import served_tier
from app.serving.generation import Generation

Event = dict[str, Any]
"""An event without its ``sequence_number``."""

COMPLETE = "fields"
"""Field of an event with the values that it completes, which are serialised separately."""

Ended = Literal["completed", "incomplete"]

Namespaces = dict[str, tuple[str, str]]
"""Namespace and name of tools that have a namespace, by the model's name for them."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Properties of all items of a type."""

    type: str
    prefix: str
    """Prefix of their ids."""
    stem: str
    """Prefix of the names of the events with their text."""
    text: str
    """Type of the part with the text, or name of the item's field with it."""
    in_part: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)


_MESSAGE = _Kind(
    "message", "msg", "response.output_text", "output_text", True, {"role": "assistant"}
)
_REASONING = _Kind(
    *("reasoning", "rs", "response.reasoning_text", "reasoning_text", True),
    {"summary": [], "encrypted_content": None},
)
_CALL = _Kind("function_call", "fc", "response.function_call_arguments", "arguments")
_CUSTOM = _Kind("custom_tool_call", "ctc", "response.custom_tool_call_input", "input")


class _Item:
    """One item while it is generated."""

    def __init__(self, kind: _Kind, key: str, index: int, fields: Mapping[str, Any]) -> None:
        self.kind = kind
        self._logs = kind is _MESSAGE
        self._id = f"{kind.prefix}_{key}_{index}"
        self._index = index
        self._fields = {**kind.fields, **fields}
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._delta = self._event("delta", delta="", **({"logprobs": []} if self._logs else {}))

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def wire(self, status: str) -> dict[str, Any]:
        """The item as it is shown."""
        if self.kind.in_part:
            shown: Any = {"content": [] if status == "in_progress" else [self._part()]}
        else:
            shown = {self.kind.text: self.text}
        return {
            "id": self._id, "type": self.kind.type, "status": status, **self._fields, **shown
        }  # fmt: skip

    def begin(self) -> list[Event]:
        return [self._of_item("added", "in_progress"), *self._of_part("added")]

    def add(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> Event:
        """The event for more text. ``logprobs``: only for a message."""
        self._texts.append(text)
        if not self._logs:
            return {**self._delta, "delta": text}
        self._logprobs += logprobs
        return {**self._delta, "delta": text, "logprobs": logprobs}

    def end(self, status: Ended) -> list[Event]:
        fields: dict[str, Any] = {"text" if self.kind.in_part else self.kind.text: self.text}
        if self._logs:
            fields["logprobs"] = self._logprobs
        if self.kind is _CALL:  # older versions of the SDK need the name
            fields["name"] = self._fields["name"]
        done = self._event("done", **fields)
        return [done, *self._of_part("done"), self._of_item("done", status)]

    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = {"type": self.kind.text, "text": self.text}
        if self._logs:
            part |= {"annotations": [], "logprobs": list(self._logprobs)}
        return part

    def _of_item(self, step: str, status: str) -> Event:
        return {
            "type": f"response.output_item.{step}",
            "output_index": self._index,
            "item": self.wire(status),
        }

    def _of_part(self, step: str) -> list[Event]:
        if not self.kind.in_part:
            return []
        return [{**self._event("", part=self._part()), "type": f"response.content_part.{step}"}]

    def _event(self, step: str, **fields: Any) -> Event:
        place = {"content_index": 0} if self.kind.in_part else {}
        type = f"{self.kind.stem}.{step}"
        return {
            "type": type, "item_id": self._id, "output_index": self._index, **place, **fields
        }  # fmt: skip


class ResponsesInputDetails(Shape):
    cached_tokens: int
    cache_write_tokens: int


class ResponsesOutputDetails(TokenSources):
    reasoning_tokens: int


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
    """A response; it also repeats the settings of its request."""

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
    """Missing if there are none."""


class InputItem(BaseModel):
    """Its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    id: str
    type: str


class CountedInput(Shape):
    object: Literal["response.input_tokens"]
    input_tokens: int


class ResponseEvent(BaseModel):
    """Its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    type: str
    sequence_number: int


def responses_renderer(
    generation: Generation,
    *,
    settings: Mapping[str, Any],
    stream: bool,
    vocabulary: Vocabulary | None,
    namespaces: Namespaces,
) -> Renderer:
    """``settings``: request settings that the response repeats; ``vocabulary``: given if
    log-probabilities are requested."""
    head = {
        "id": f"resp_{generation.request_id}",
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        **settings,
        "service_tier": served_tier(generation),
    }
    return (_Events if stream else _Unstreamed)(head, generation, vocabulary, namespaces)


class _Unstreamed(ListRenderer):
    """A whole response as one object. The deltas of its events add up to the texts of its items."""

    def __init__(
        self,
        head: dict[str, Any],
        generation: Generation,
        vocabulary: Vocabulary | None,
        namespaces: Namespaces,
    ) -> None:
        super().__init__(head, generation)
        self._vocabulary = vocabulary
        self._namespaces = namespaces
        self._status: Ended = "completed"
        self._items: list[dict[str, Any]] = []
        """The finished items, as the response shows them."""
        self._open: _Item | None = None
        self._waiting: list[dict[str, Any]] = []
        """Log-probabilities of text that is held back still."""

    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        self._add(pieces)
        return b""

    def end(self) -> bytes:
        self.response = self._response()
        return to_json(self.response)

    def _add(self, pieces: Sequence[Piece]) -> list[Event]:
        """The events of ``pieces``."""
        events: list[Event] = []
        for piece in pieces:
            match piece:
                case Content(text=text, tokens=tokens):
                    events += self._content(text, tokens)
                case Reasoning(text=text):
                    events += self._text(_REASONING, text)
                case CallStart(name=name, id=id, custom=custom):
                    space, inner = self._namespaces.get(name, ("", name))
                    named = {"namespace": space, "name": inner} if space else {"name": name}
                    events += self._begin(_CUSTOM if custom else _CALL, call_id=id, **named)
                case CallArguments(text=text, custom=custom):
                    if text or not custom:
                        events.append(self._opened.add(text))
                case CallEnd():
                    events += self._close("completed")
                case Fields(values=values):  # in an empty delta behind the one that completes them
                    events.append({**self._opened.add(""), COMPLETE: values})
                case End(reason=reason):
                    self._status = "incomplete" if reason == "length" else "completed"
                    if self._open is None and not self._items and reason != "length":
                        events += self._begin(_MESSAGE)  # empty: the answer has no text
                    events += self._close(self._status)
                case _:
                    self._note(piece)
        return events

    def _content(self, text: str, tokens: Sequence[AnswerToken]) -> list[Event]:
        if self._vocabulary is not None:
            entries = logprob_entries(tokens, self._vocabulary)
            for entry in entries:  # here a token without bytes of its own has none
                for token in (entry, *entry["top_logprobs"]):
                    token["bytes"] = token["bytes"] or []
            self._waiting += entries
        in_message = self._open is not None and self._open.kind is _MESSAGE
        if not text and not (self._waiting and in_message):
            return []
        logprobs, self._waiting = self._waiting, []
        return self._text(_MESSAGE, text, logprobs)

    def _text(self, kind: _Kind, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> list[Event]:
        is_open = self._open is not None and self._open.kind is kind
        events = [] if is_open else self._begin(kind)
        return [*events, self._opened.add(text, logprobs)]

    def _begin(self, kind: _Kind, **fields: str) -> list[Event]:
        events = self._close("completed")
        self._open = _Item(kind, self._generation.request_id, len(self._items), fields)
        return events + self._open.begin()

    @property
    def _opened(self) -> _Item:
        assert self._open is not None
        return self._open

    def _close(self, status: Ended) -> list[Event]:
        if self._open is None:
            return []
        events = self._open.end(status)
        self._items.append(self._open.wire(status))
        self._open = None
        return events

    def _response(self) -> dict[str, Any]:
        """The finished response."""
        complete = self._status == "completed"
        return {
            **self._head,
            "status": self._status,
            "completed_at": int(time.time()) if complete else None,
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "output": self._items,
            "usage": _usage(self._generation.usage()),
            **self._reports(),
        }


class _Events(_Unstreamed):
    """A response as numbered server-sent events."""

    _number = 0

    def begin(self) -> bytes:
        steps = ("response.created", "response.in_progress")
        return self._write({"type": step, "response": self._head} for step in steps)

    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        return self._write(self._with_origins(self._add(pieces)))

    def end(self) -> bytes:
        self.response = self._response()
        event = {"type": f"response.{self._status}", "response": self.response}
        return self._write(self._with_origins([event]))

    def _with_origins(self, events: list[Event]) -> list[Event]:
        """``events``, the last of which reports the origins of new or changed tokens."""
        if events:
            events[-1] |= self._take_origins(self._vocabulary)
        return events

    def fail(self, error: Exception) -> bytes:
        fields = envelope(error)["error"]
        # The API's reference has the error's fields beside the type, OpenAI's own server has
        # them under ``error``, and clients look in either place.
        event = {"type": "error", **{key: fields[key] for key in ("code", "message", "param")}}
        kinds = {RequestError: "invalid_prompt", QueueFull: "rate_limit_exceeded"}
        code = next((each for kind, each in kinds.items() if isinstance(error, kind)), None)
        failure = {"code": code or "server_error", "message": fields["message"]}
        open_items = self._close("incomplete")
        response = {
            **self._head, "status": "failed", "output": self._items, "error": failure
        }  # fmt: skip
        return (b"" if self._number else self.begin()) + self._write(
            [
                *open_items,
                {**event, "error": fields},
                {"type": "response.failed", "response": response},
            ]
        )

    def _write(self, events: Iterable[Event]) -> bytes:
        return b"".join([self._one(event) for event in events])

    def _one(self, event: Event) -> bytes:
        event["sequence_number"] = self._number
        self._number += 1
        whole: Sequence[FieldValue] = event.pop(COMPLETE, ())
        data = with_fields(to_json(event), whole) if whole else to_json(event)
        return named_event(event["type"], data)


def _usage(usage: AnswerUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            **token_sources(usage),
        },
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
