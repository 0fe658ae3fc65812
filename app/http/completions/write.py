"""Answers in the form of completions: one object, or the chunks of a stream."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from app.answer.pieces import Content, End, Fields, FieldValue, Measurements, Piece, PromptTokens
from app.answer.prompt import Prompt, TextPrompt, TokenPrompt
from app.core.constraint import Vocabulary
from app.core.events import AnswerToken, Origins
from app.core.text import Tokenizer
from app.http.endpoint import Renderer
from app.http.models import ServedModel
from app.http.openapi import Shape
from app.http.renderers import ChunkRenderer, UnstreamedRenderer, Usage, head_of
from app.http.reports import (
    CompleteValue,
    Measured,
    TokenOrigins,
    Warning,
    finite,
    measured,
    origins_entry,
)
from app.http.requests.fields import StreamOptions
from app.serving.generation import Generation


class CompletionLogprobs(Shape):
    """Lists with an item for each token, with ``echo`` from the prompt's first token on."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class _Choice(Measured):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    fields: list[CompleteValue] = Field(default=[])
    """Values completed by this chunk of a stream, if requested."""


class CompletionChunkChoice(_Choice):
    """A choice in a chunk; reports on its values come in its last chunk."""

    origins: TokenOrigins | None = None
    """Origins of new or changed tokens, if requested."""


class CompletionChoice(_Choice):
    finish_reason: Literal["stop", "length"]


class _Head(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str


class Completion(_Head):
    choices: list[CompletionChoice]
    usage: Usage
    warnings: list[Warning] = Field(default=[])
    """Missing if there are none."""


class CompletionChunk(_Head):
    choices: list[CompletionChunkChoice]
    usage: Usage | None = None
    warnings: list[Warning] = Field(default=[])
    """In the last chunk with a choice; missing if there are none."""


TokenName = Callable[[int], str]
"""From the id of a token that was not drawn to its name."""


def spelled(data: bytes) -> str:
    """Bytes as text, or as ``bytes:\\xe2\\x80``, as OpenAI writes parts of a character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def token_name(vocabulary: Vocabulary, tokenizer: Tokenizer) -> TokenName:
    """Names tokens by their bytes, and special tokens, which have none, by the tokenizer."""

    def name(token: int) -> str:
        data = vocabulary.token_bytes[token]
        return tokenizer.decode([token]) if data is None else spelled(data)

    return name


class ChoiceLogprobs:
    """Builds the ``logprobs`` of one choice, as its tokens arrive."""

    def __init__(self, name: TokenName) -> None:
        self._name = name
        self._named = False
        """Whether tokens without text are reported, too, by their names."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._characters = 0
        """Whole characters before the next token, which may be inside the one after them."""

    def of(
        self, tokens: Sequence[AnswerToken], prompt: Sequence[AnswerToken] = (), text: str = ""
    ) -> dict[str, Any]:
        """``logprobs`` for the next tokens; those that added no text are left out.

        ``text_offset`` counts characters of the choice's text. If that begins with the ``prompt``,
        whose text is ``text``, all tokens are reported, the first without a probability, because
        evaluation tools count them.
        """
        if prompt:
            self._named = True
        if not self._named:
            tokens = [token for token in tokens if token.data]
        tokens = [*prompt, *tokens]
        first = tokens[0] if prompt else None
        return {
            "text_offset": [self._advance(token, text) for token in tokens],
            "token_logprobs": [
                None if token is first else finite(token.logprob) for token in tokens
            ],
            "tokens": [self._spelled(token) for token in tokens],
            "top_logprobs": [
                None if token is first else self._likeliest(token) for token in tokens
            ],
        }

    def _spelled(self, token: AnswerToken) -> str:
        return spelled(token.data) if token.data else self._name(token.token_id)

    def _advance(self, token: AnswerToken, text: str) -> int:
        begins = self._characters
        name = "" if token.data else self._name(token.token_id)
        if name and text.startswith(name, begins):  # a special token that the prompt names
            self._characters += len(name)
        self._characters += len(self._decoder.decode(token.data))
        return begins

    def _likeliest(self, token: AnswerToken) -> dict[str, float]:
        """Log-probabilities of the likeliest tokens by name, and of the drawn one if it is another.

        Of tokens with the same name (one spelled in a special way, say) the likeliest counts.
        """
        drawn = self._spelled(token)
        likeliest: dict[str, float] = {}
        for top in token.top:
            name = drawn if top.token_id == token.token_id else self._name(top.token_id)
            likeliest.setdefault(name, finite(top.logprob))
        likeliest.setdefault(drawn, finite(token.logprob))
        return likeliest


def completion_renderer(
    generation: Generation,
    *,
    model: ServedModel,
    stream: StreamOptions | None,
    vocabulary: Vocabulary,
    token_name: TokenName,
    logprobs: bool,
    echoed: Sequence[Prompt],
) -> Renderer:
    """``stream`` None: one object. ``echoed``: the prompts, where texts begin with them."""
    head = head_of(f"cmpl-{generation.request_id}", "text_completion", model)
    before = [""] * generation.n
    if echoed:
        texts = [_text_of(each, vocabulary, token_name) for each in echoed]
        before = [text for text in texts for _ in range(generation.n // len(texts))]
    name = token_name if logprobs else None
    if stream is not None:
        return _Chunks(head, generation, stream, vocabulary, name, before)
    choices = [_Text([text], name and ChoiceLogprobs(name)) for text in before]
    return UnstreamedRenderer(head, generation, choices)


def _text_of(prompt: Prompt, vocabulary: Vocabulary, token_name: TokenName) -> str:
    """The text of a prompt; special tokens in token ids are written by name."""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    assert isinstance(prompt, TokenPrompt), "completions have no conversations"
    spelled = ((vocabulary.token_bytes[token], token) for token in prompt.tokens)
    parts = [token_name(token).encode() if data is None else data for data, token in spelled]
    return b"".join(parts).decode(errors="replace")


@dataclass(slots=True)
class _Text:
    """Text and tokens of a whole answer so far, or of one chunk."""

    texts: list[str] = field(default_factory=list)
    logprobs: ChoiceLogprobs | None = None
    """None: the request did not ask for log-probabilities."""
    tokens: list[AnswerToken] = field(default_factory=list)
    prompt: Sequence[AnswerToken] = ()
    """Tokens of the prompt, if the text begins with it."""
    measured: dict[str, Any] = field(default_factory=dict)
    """Reports on the values."""
    finish_reason: str | None = None
    whole: list[FieldValue] = field(default_factory=list)
    origins: Origins | None = None

    def add(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            match piece:
                case Content(text=text, tokens=tokens):
                    self.texts.append(text)
                    self.tokens += tokens
                case Measurements():
                    self.measured |= measured(piece)
                case Fields(values=whole):
                    self.whole += whole
                case Origins():
                    self.origins = piece
                case PromptTokens(tokens=tokens):
                    self.prompt = tokens
                case End(reason=reason):
                    self.finish_reason = reason

    def wire(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "text": "".join(self.texts),
            "logprobs": None
            if self.logprobs is None
            else self.logprobs.of(self.tokens, self.prompt, self.texts[0] if self.prompt else ""),
            "finish_reason": self.finish_reason,
            **self.measured,
        }


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
        """``name``: given if log-probabilities are requested; ``before``: beginning of the text of
        each choice."""
        super().__init__(head, generation, options)
        self._before = {index: text for index, text in enumerate(before) if text}
        """Beginnings of the texts of choices that have not begun."""
        self._vocabulary = None if name is None else vocabulary
        self._logprobs = (
            None if name is None else [ChoiceLogprobs(name) for _ in range(generation.n)]
        )

    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        choice = _Text([self._before.pop(index, "")])
        choice.add(pieces)
        if self._logprobs is not None and (
            choice.prompt or any(token.data for token in choice.tokens)
        ):
            choice.logprobs = self._logprobs[index]
        event = b""
        if choice.origins is not None:  # in a chunk of their own
            entry = origins_entry(choice.origins, self._vocabulary)
            event = self._event(_Text().wire(index) | {"origins": entry})
        if not any(choice.texts) and choice.logprobs is None and choice.finish_reason is None:
            return event
        if choice.finish_reason is None:
            return self._event(choice.wire(index), choice.whole) + event
        if choice.whole:  # beside their text, in a chunk before the last
            first = _Text(choice.texts, choice.logprobs, choice.tokens, choice.prompt)
            event += self._event(first.wire(index), choice.whole)
            choice.texts, choice.logprobs = [], None
        return event + self._last(choice.wire(index))
