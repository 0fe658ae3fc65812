"""Base renderers of several APIs, for answers as one object or as events.

Chat completions and completions have choices (``UnstreamedRenderer``, ``ChunkRenderer``), messages
and responses a list of blocks or items (``ListRenderer``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic_core import to_json

from app.answer.pieces import FieldValue, Measurements, Piece
from app.core.constraint import Vocabulary
from app.core.events import Origins
from app.http.endpoint import Renderer
from app.http.errors import envelope
from app.http.models import ServedModel
from app.http.openapi import Shape
from app.http.reports import (
    TokenSources,
    measured,
    merged,
    origins_entry,
    token_sources,
    warnings_of,
    with_fields,
)
from app.http.requests.fields import StreamOptions
from app.serving.generation import Generation

_DONE = b"data: [DONE]\n\n"


class PromptTokensDetails(Shape):
    cached_tokens: int
    audio_tokens: int


class CompletionTokensDetails(TokenSources):
    reasoning_tokens: int
    audio_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Shape):
    """OpenAI's usage, with the sources of the tokens in its details."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


def _usage(generation: Generation) -> bytes:
    usage = generation.usage()
    return to_json(
        {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": usage.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": usage.accepted_prediction_tokens,
                "rejected_prediction_tokens": usage.rejected_prediction_tokens,
                **token_sources(usage),
            },
        }
    )


def head_of(id: str, object: str, model: ServedModel) -> dict[str, Any]:
    """The first members of every answer and every chunk of these APIs."""
    return {
        "id": id,
        "object": object,
        "created": int(time.time()),
        "model": model.id,
        "system_fingerprint": model.fingerprint,
    }


class ChunkRenderer(Renderer):
    """A stream of chunks as server-sent events. What is the same in all is serialised once."""

    def __init__(
        self, head: Mapping[str, Any], generation: Generation, options: StreamOptions
    ) -> None:
        """``head``: the first members of every chunk."""
        self._head = b"data: " + to_json(head)[:-1] + b',"choices":['
        self._generation = generation
        self._options = options
        self._held: list[Mapping[str, Any]] = []

    def end(self) -> bytes:
        """The stream's end; before it the chunk with the usage, if that is asked for."""
        held = b"".join(map(self._event, self._held[:-1]))
        if self._held:  # the last one has the warnings
            warnings = to_json(warnings_of(self._generation))[1:-1]
            held += b"".join(
                (self._head, to_json(self._held[-1]), b"],", warnings, self._ending()[1:])
            )
        if not self._options.include_usage:
            return held + _DONE
        return held + self._head + b'],"usage":' + _usage(self._generation) + b"}\n\n" + _DONE

    def fail(self, error: Exception) -> bytes:
        """The error event that ends a stream; its status line is already sent."""
        return b"data: " + to_json(envelope(error)) + b"\n\n"

    def _last(self, choice: Mapping[str, Any]) -> bytes:
        """The chunk that ends a choice; held back if the last one will have warnings."""
        if self._generation.relaxed is None and not self._generation.closed:
            return self._event(choice)
        self._held.append(choice)
        return b""

    def _event(self, choice: Mapping[str, Any], whole: Sequence[FieldValue] = ()) -> bytes:
        """One chunk, with the values that it completes in ``fields``."""
        data = to_json(choice)
        return b"".join((self._head, with_fields(data, whole) if whole else data, self._ending()))

    def _ending(self) -> bytes:
        """The end of a chunk. If any chunk has usage, all have it: null, or the counts so far."""
        if self._options.continuous_usage_stats:
            return b'],"usage":' + _usage(self._generation) + b"}\n\n"
        return b'],"usage":null}\n\n' if self._options.include_usage else b"]}\n\n"


class UnstreamedChoice(Protocol):
    """One choice of an unstreamed answer, while it is generated."""

    def add(self, pieces: Sequence[Piece]) -> None: ...

    def wire(self, index: int) -> dict[str, Any]:
        """The choice in the API's format, as number ``index``."""


class UnstreamedRenderer(Renderer):
    """An answer as one object."""

    def __init__(
        self, head: Mapping[str, Any], generation: Generation, choices: Sequence[UnstreamedChoice]
    ) -> None:
        """``head``: the first members of the object."""
        self._head = head
        self._generation = generation
        self._choices = choices

    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        """Only collects."""
        self._choices[index].add(pieces)
        return b""

    def end(self) -> bytes:
        # One choice after the other, so that no call keeps other threads waiting for long.
        choices = b",".join([to_json(each.wire(index)) for index, each in enumerate(self._choices)])
        head = to_json({**self._head, **warnings_of(self._generation)})[:-1]
        return head + b',"choices":[' + choices + b'],"usage":' + _usage(self._generation) + b"}"


class ListRenderer(Renderer):
    """An answer as one object with a list in it; collects what is reported beside the list."""

    def __init__(self, head: dict[str, Any], generation: Generation) -> None:
        """``head``: the object before there is any output."""
        self._head = head
        self._generation = generation
        self._measured: dict[str, Any] = {}
        """Reports on the values of the answer."""
        self._origins: Origins | None = None
        """Origins of tokens that no event has reported yet."""

    def _note(self, piece: Piece) -> None:
        match piece:
            case Origins():
                self._origins = merged(self._origins, piece)
            case Measurements():
                self._measured |= measured(piece)

    def _reports(self) -> dict[str, Any]:
        """The members beside the list once it has ended."""
        return {**self._measured, **warnings_of(self._generation)}

    def _take_origins(self, vocabulary: Vocabulary | None = None) -> dict[str, Any]:
        """The member ``origins``, where there is something to report."""
        origins, self._origins = self._origins, None
        return {} if origins is None else {"origins": origins_entry(origins, vocabulary)}


def named_event(type: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (type.encode(), data)
