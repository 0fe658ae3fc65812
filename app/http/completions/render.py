"""Answers in the words of completions: whole, and the chunks of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.answer.pieces import (
    Confidences,
    Content,
    Delta,
    End,
    Fields,
    FieldValue,
    Inexact,
    PromptTokens,
    Spans,
)
from app.answer.prompt import Prompt, TextPrompt, TokenPrompt
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
    echoed: Sequence[Prompt] = (),
) -> Callable[[Generation], Renderer]:
    """What answers ``wire``, once there is a generation.

    ``echoed``: the prompts, where texts begin with them.
    """
    name = None if wire.logprobs is None else token_name
    prompts = [_text_of(each, vocabulary, token_name) for each in echoed]
    n = wire.n or 1

    def renderer(generation: Generation) -> Renderer:
        head = {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.id,
            "system_fingerprint": model.fingerprint,
        }
        before = [prompts[index // n] if prompts else "" for index in range(generation.n)]
        if wire.stream:
            return _Chunks(head, generation, stream_options(wire), vocabulary, name, before)
        return _Whole(head, generation, name, before)

    return renderer


def _text_of(prompt: Prompt, vocabulary: Vocabulary, token_name: TokenName) -> str:
    """The text of a prompt, with the names of special tokens that it is given in tokens."""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    assert isinstance(prompt, TokenPrompt), "completions have no conversations"
    spelled = ((vocabulary.token_bytes[token], token) for token in prompt.tokens)
    parts = [token_name(token).encode() if data is None else data for data, token in spelled]
    return b"".join(parts).decode(errors="replace")


@dataclass(slots=True)
class _Choice:
    """Text and tokens so far; of a whole answer, or of one chunk."""

    texts: list[str] = field(default_factory=list)
    tokens: list[AnswerToken] = field(default_factory=list)
    prompt: Sequence[AnswerToken] = ()
    """Those of the prompt, where the text begins with it."""
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
                case PromptTokens(tokens=tokens):
                    self.prompt = tokens
                case End(reason=reason):
                    self.finish_reason = reason

    def wire(self, index: int, logprobs: ChoiceLogprobs | None) -> dict[str, Any]:
        return {
            "index": index,
            "text": "".join(self.texts),
            "logprobs": None
            if logprobs is None
            else logprobs.of(self.tokens, self.prompt, self.texts[0] if self.prompt else ""),
            "finish_reason": self.finish_reason,
            **self.measured,
        }


class _Whole(WholeRenderer):
    def __init__(
        self,
        head: dict[str, Any],
        generation: Generation,
        name: TokenName | None,
        before: Sequence[str],
    ) -> None:
        """``name`` is given where log-probabilities are asked for; ``before``: what the text of
        each choice begins with."""
        super().__init__(head, generation)
        self._name = name
        self._choices = [_Choice([text]) for text in before]

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
        before: Sequence[str],
    ) -> None:
        """See ``_Whole``."""
        super().__init__(head, generation, options)
        self._before = {index: text for index, text in enumerate(before) if text}
        """Of choices that have not begun."""
        self._vocabulary = None if name is None else vocabulary
        self._logprobs = (
            None if name is None else [ChoiceLogprobs(name) for _ in range(generation.n)]
        )
        self._texts = [
            self._frame(_Choice(texts=[TEXT]).wire(index, None)) for index in range(generation.n)
        ]

    def chunk(self, delta: Delta) -> bytes:
        """b"" where there is nothing to send yet."""
        before = self._before.pop(delta.index, "") if self._before else ""
        match delta.pieces:
            case [Content(text=text)] if text and self._logprobs is None and not before:
                return self._framed(self._texts[delta.index], text)
        choice = _Choice([before])
        choice.add(delta)
        logprobs = None
        if self._logprobs is not None and (
            choice.prompt or any(token.data for token in choice.tokens)
        ):
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
            first = _Choice(choice.texts, choice.tokens, choice.prompt)
            told += self._event(first.wire(delta.index, logprobs), choice.whole)
            choice.texts, logprobs = [], None
        return told + self._last(choice.wire(delta.index, logprobs))
