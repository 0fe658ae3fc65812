"""Responses as they are on the wire: whole, or as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from app.core.constraint import Vocabulary
from app.core.errors import QueueFull, RequestError
from app.core.events import TextChunk
from app.http.choices import ChoiceReaders
from app.http.errors import envelope
from app.http.responses.output import Ended, Event, OutputBuilder

Usage = Mapping[str, Any]
"""As chat completions have it: see ``app.http.usage``."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What every state of one response begins with."""

    key: str
    """Of the response's id and those of its items."""
    created: int
    model: str
    settings: Mapping[str, Any]

    def response(self, status: str, **fields: Any) -> dict[str, Any]:
        """The response object; ``fields`` are those that its answer has changed."""
        return {
            "id": f"resp_{self.key}",
            "object": "response",
            "created_at": self.created,
            "completed_at": None,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": [],
            "usage": None,
            **self.settings,
            **fields,
        }


class Answer:
    """A response while it comes."""

    def __init__(
        self, head: ResponseHead, readers: ChoiceReaders, vocabulary: Vocabulary | None
    ) -> None:
        """``vocabulary`` is given where log-probabilities are asked for."""
        self._head = head
        self._readers = readers
        self._output = OutputBuilder(head.key, readers.call_ids, vocabulary)
        self._status: Ended = "completed"

    def begin(self) -> list[Event]:
        """The events that open a stream."""
        return [
            {"type": f"response.{step}", "response": self._head.response("in_progress")}
            for step in ("created", "in_progress")
        ]

    def add(self, chunk: TextChunk) -> list[Event]:
        """The events of one chunk."""
        reading = self._readers.read(chunk)
        events = self._output.add(reading)
        if reading.finish_reason is not None:
            self._status = "incomplete" if reading.finish_reason == "length" else "completed"
            events += self._output.end(self._status)
        return events

    def end(self, usage: Usage, moment: float) -> Event:
        """The event that ends a stream, with the whole response. ``moment``: in Unix time."""
        complete = self._status == "completed"
        response = self._head.response(
            self._status,
            completed_at=int(moment) if complete else None,
            incomplete_details=None if complete else {"reason": "max_output_tokens"},
            output=self._output.items,
            usage=_usage(usage),
        )
        return {"type": f"response.{self._status}", "response": response}

    def fail(self, error: Exception) -> list[Event]:
        """The events that end a stream in which the answer failed."""
        told = envelope(error)["error"]
        events = self._output.end("incomplete")
        # The API's reference has the error's fields beside the type, OpenAI's own server has
        # them under ``error``, and clients look in either place.
        event = {"type": "error", **{key: told[key] for key in ("code", "message", "param")}}
        failure = {"code": _failure_code(error), "message": told["message"]}
        response = self._head.response("failed", output=self._output.items, error=failure)
        return [
            *events,
            {**event, "error": told},
            {"type": "response.failed", "response": response},
        ]


class EventWriter:
    """Numbers the events of one stream and writes them as server-sent events."""

    def __init__(self) -> None:
        self._number = 0

    def write(self, events: Iterable[Event]) -> bytes:
        return b"".join(self._one(event) for event in events)

    def _one(self, event: Event) -> bytes:
        kind: str = event["type"]
        data = to_json({**event, "sequence_number": self._number})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def _usage(usage: Usage) -> dict[str, Any]:
    """In this API's terms, with the details that chat completions have about leaps."""
    details = usage["completion_tokens_details"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
            "cache_write_tokens": 0,
        },
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {
            name: details[name]
            for name in ("reasoning_tokens", "leapt_tokens", "drafted_tokens", "forward_passes")
        },
        "total_tokens": usage["total_tokens"],
    }


def _failure_code(error: Exception) -> str:
    """One of the codes that the API has for responses that failed."""
    match error:
        case RequestError():
            return "invalid_prompt"
        case QueueFull():
            return "rate_limit_exceeded"
    return "server_error"
