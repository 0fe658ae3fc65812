"""Objects with choices, as chat completions and completions have them: whole, or in chunks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from app.answer.pieces import Delta
from app.http.answering import Renderer, error_event
from app.http.openapi import Shape
from app.http.requests.generation import StreamOptions
from app.serving.generation import Generation

_DONE = b"data: [DONE]\n\n"


class PromptTokensDetails(Shape):
    cached_tokens: int
    audio_tokens: int


class CompletionTokensDetails(Shape):
    reasoning_tokens: int
    audio_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    leapt_tokens: int
    """Forced by the constraint, and never decoded."""
    drafted_tokens: int
    """Guessed and confirmed."""
    forward_passes: int


class Usage(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


def _usage(generation: Generation) -> bytes:
    """OpenAI's usage, and in its details how the tokens came about."""
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
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
                "leapt_tokens": usage.leapt_tokens,
                "drafted_tokens": usage.drafted_tokens,
                "forward_passes": usage.forward_passes,
            },
        }
    )


class ChunkRenderer(Renderer):
    """A stream of chunks as server-sent events. What is the same in all is serialised once."""

    def __init__(
        self, head: Mapping[str, Any], generation: Generation, options: StreamOptions | None
    ) -> None:
        """``head``: what every chunk begins with. Without ``options`` none has ``usage``."""
        self._head = b"data: " + to_json(head)[:-1] + b',"choices":['
        self._generation = generation
        self._options = options or StreamOptions()

    def end(self) -> bytes:
        """The stream's end; before it the chunk with the usage, if that is asked for."""
        if not self._options.include_usage:
            return _DONE
        usage = _usage(self._generation)
        return self._head + b'],"usage":' + usage + b"}\n\n" + _DONE

    def fail(self, error: Exception) -> bytes:
        return error_event(error)

    def _event(self, choice: Mapping[str, Any]) -> bytes:
        """One chunk. If any has ``usage``, all have: null, or the counts so far."""
        options = self._options
        event = self._head + to_json(choice)
        if options.continuous_usage_stats:
            usage = _usage(self._generation)
            return event + b'],"usage":' + usage + b"}\n\n"
        return event + (b'],"usage":null}\n\n' if options.include_usage else b"]}\n\n")


class WholeRenderer(Renderer):
    """A whole answer as one object."""

    def __init__(self, head: Mapping[str, Any], generation: Generation) -> None:
        """``head``: what the object begins with."""
        self._head = head
        self._generation = generation

    def chunk(self, delta: Delta) -> bytes:
        """Only collects."""
        self._add(delta)
        return b""

    def end(self) -> bytes:
        # One choice after the other, so that no call keeps other threads waiting for long.
        choices = b",".join([to_json(self._choice(index)) for index in range(self._generation.n)])
        usage = _usage(self._generation)
        return to_json(self._head)[:-1] + b',"choices":[' + choices + b'],"usage":' + usage + b"}"

    @abstractmethod
    def _add(self, delta: Delta) -> None: ...

    @abstractmethod
    def _choice(self, index: int) -> dict[str, Any]: ...
