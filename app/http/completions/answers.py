"""Completions as they are on the wire: whole, and as the chunks of a stream, as JSON bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from app.core.events import AnswerToken, TextChunk
from app.http.completions.logprobs import ChoiceLogprobs, TokenName


@dataclass(frozen=True, slots=True)
class CompletionHead:
    """What every object of one answer begins with; the same whole and in a stream."""

    id: str
    created: int
    model: str
    fingerprint: str

    def fields(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


@dataclass(slots=True)
class _Choice:
    text: list[str] = field(default_factory=list)
    tokens: list[AnswerToken] = field(default_factory=list)
    finish_reason: str | None = None


class CompletionBuilder:
    """Collects the chunks of a whole answer."""

    def __init__(self, head: CompletionHead, choices: int, name: TokenName | None) -> None:
        """``name`` is given where log-probabilities are asked for."""
        self._head = head
        self._name = name
        self._choices = [_Choice() for _ in range(choices)]

    def add(self, chunk: TextChunk) -> None:
        choice = self._choices[chunk.index]
        choice.text.append(chunk.text)
        if self._name is not None:
            choice.tokens.extend(chunk.tokens)
        choice.finish_reason = chunk.finish_reason

    def build(self, usage: dict[str, Any]) -> bytes:
        """The completion. Many log-probabilities take a second: those are no work for the loop."""
        head = to_json(self._head.fields())
        # One choice after the other, so that no call keeps other threads waiting for long.
        choices = b",".join(to_json(self._choice(*each)) for each in enumerate(self._choices))
        return head[:-1] + b',"choices":[' + choices + b'],"usage":' + to_json(usage) + b"}"

    def _choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        return _choice_object(
            index, "".join(choice.text), self._logprobs(choice.tokens), choice.finish_reason
        )

    def _logprobs(self, tokens: Sequence[AnswerToken]) -> dict[str, Any] | None:
        return None if self._name is None else ChoiceLogprobs(self._name).of(tokens)


class CompletionWriter:
    """Writes the chunks of one stream as server-sent events.

    What is the same in all of them is serialised once.
    """

    def __init__(
        self, head: CompletionHead, choices: int, name: TokenName | None, *, usage_key: bool
    ) -> None:
        """``usage_key``: every chunk has ``usage``, null but in the last (or in each, on wish)."""
        self._logprobs = None if name is None else [ChoiceLogprobs(name) for _ in range(choices)]
        self._usage_key = usage_key
        self._opening = b"data: " + to_json(head.fields())[:-1] + b',"choices":['

    def chunk(self, chunk: TextChunk, usage: dict[str, Any] | None = None) -> bytes:
        """The event of one ``TextChunk``; b"" where it holds back all it has."""
        logprobs = None
        if self._logprobs is not None and any(token.data for token in chunk.tokens):
            logprobs = self._logprobs[chunk.index].of(chunk.tokens)
        if not chunk.text and logprobs is None and chunk.finish_reason is None:
            return b""
        event = self._opening + to_json(
            _choice_object(chunk.index, chunk.text, logprobs, chunk.finish_reason)
        )
        if not self._usage_key:
            return event + b"]}\n\n"
        return event + b'],"usage":' + to_json(usage) + b"}\n\n"

    def usage(self, usage: dict[str, Any]) -> bytes:
        """The chunk with no choices that ``include_usage`` asks for."""
        return self._opening + b'],"usage":' + to_json(usage) + b"}\n\n"


def _choice_object(
    index: int, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
