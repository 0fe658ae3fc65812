"""Answers in the words of completions: whole, and the chunks of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.answer.pieces import Confidences, Content, Delta, End, Fields, FieldValue, Inexact, Spans
from app.core.constraint import Vocabulary
from app.core.events import AnswerToken, Origins
from app.http.answering import Renderer
from app.http.choices import TEXT, ChunkRenderer, WholeRenderer
from app.http.completions.logprobs import ChoiceLogprobs, TokenName
from app.http.completions.wire import CompletionRequest
from app.http.confidence import measured
from app.http.models import ServedModel
from app.http.origins import origins_entry
from app.http.requests.generation import StreamOptions, stream_options
from app.serving.generation import Generation


def completion_renderer(
    wire: CompletionRequest,
    request_id: str,
    model: ServedModel,
    vocabulary: Vocabulary,
    token_name: TokenName,
) -> Callable[[Generation], Renderer]:
    """What answers ``wire``, once there is a generation."""
    name = None if wire.logprobs is None else token_name

    def renderer(generation: Generation) -> Renderer:
        head = {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.id,
            "system_fingerprint": model.fingerprint,
        }
        if wire.stream:
            return _Chunks(head, generation, stream_options(wire), vocabulary, name)
        return _Whole(head, generation, name)

    return renderer


@dataclass(slots=True)
class _Choice:
    """Text and tokens so far; of a whole answer, or of one chunk."""

    texts: list[str] = field(default_factory=list)
    tokens: list[AnswerToken] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    """What is told of the values."""
    finish_reason: str | None = None
    whole: list[FieldValue] = field(default_factory=list)
    origins: Origins | None = None

    def add(self, delta: Delta) -> None:
        for piece in delta.pieces:
            match piece:
                case Content(text=text, tokens=tokens):
                    self.texts.append(text)
                    self.tokens += tokens
                case Confidences() | Inexact() | Spans():
                    self.measured |= measured(piece)
                case Fields(values=whole):
                    self.whole += whole
                case Origins():
                    self.origins = piece
                case End(reason=reason):
                    self.finish_reason = reason

    def wire(self, index: int, logprobs: ChoiceLogprobs | None) -> dict[str, Any]:
        return {
            "index": index,
            "text": "".join(self.texts),
            "logprobs": None if logprobs is None else logprobs.of(self.tokens),
            "finish_reason": self.finish_reason,
            **self.measured,
        }


class _Whole(WholeRenderer):
    def __init__(
        self, head: dict[str, Any], generation: Generation, name: TokenName | None
    ) -> None:
        """``name`` is given where log-probabilities are asked for."""
        super().__init__(head, generation)
        self._name = name
        self._choices = [_Choice() for _ in range(generation.n)]

    def _add(self, delta: Delta) -> None:
        self._choices[delta.index].add(delta)

    def _choice(self, index: int) -> dict[str, Any]:
        logprobs = None if self._name is None else ChoiceLogprobs(self._name)
        return self._choices[index].wire(index, logprobs)


class _Chunks(ChunkRenderer):
    def __init__(
        self,
        head: dict[str, Any],
        generation: Generation,
        options: StreamOptions,
        vocabulary: Vocabulary,
        name: TokenName | None,
    ) -> None:
        """``name`` is given where log-probabilities are asked for."""
        super().__init__(head, generation, options)
        self._vocabulary = None if name is None else vocabulary
        self._logprobs = (
            None if name is None else [ChoiceLogprobs(name) for _ in range(generation.n)]
        )
        self._texts = [
            self._frame(_Choice(texts=[TEXT]).wire(index, None)) for index in range(generation.n)
        ]

    def chunk(self, delta: Delta) -> bytes:
        """b"" where there is nothing to send yet."""
        match delta.pieces:
            case [Content(text=text)] if text and self._logprobs is None:
                return self._framed(self._texts[delta.index], text)
        choice = _Choice()
        choice.add(delta)
        logprobs = None
        if self._logprobs is not None and any(token.data for token in choice.tokens):
            logprobs = self._logprobs[delta.index]
        told = b""
        if choice.origins is not None:  # in a chunk of their own
            entry = origins_entry(choice.origins, self._vocabulary)
            told = self._event(_Choice().wire(delta.index, None) | {"origins": entry})
        if not any(choice.texts) and logprobs is None and choice.finish_reason is None:
            return told
        if choice.finish_reason is None:
            return self._event(choice.wire(delta.index, logprobs), choice.whole) + told
        if choice.whole:  # beside their text, in a chunk before the last
            before = _Choice(choice.texts, choice.tokens)
            told += self._event(before.wire(delta.index, logprobs), choice.whole)
            choice.texts, logprobs = [], None
        return told + self._last(choice.wire(delta.index, logprobs))
