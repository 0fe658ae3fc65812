"""Answers as they are on the wire: whole completions and the chunks of a stream, as JSON bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from app.core.constraint import Vocabulary
from app.core.events import AnswerToken, AnswerUsage, TextChunk

LOWEST_LOGPROB = -9999.0
"""What OpenAI reports for a probability of zero; JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What every object of one answer begins with."""

    id: str
    created: int
    model: str
    fingerprint: str

    def fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "service_tier": "default",
        }


def usage_object(prompt_tokens: int, usage: Mapping[int, AnswerUsage]) -> dict[str, Any]:
    """OpenAI's usage, and in its details how the tokens came about. The prompt counts once."""
    answers = usage.values()
    completion = sum(each.completion_tokens for each in answers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
        "prompt_tokens_details": {
            "cached_tokens": max((each.cached_tokens for each in answers), default=0),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
            "leapt_tokens": sum(each.leapt_tokens for each in answers),
            "drafted_tokens": sum(each.drafted_tokens for each in answers),
            "forward_passes": sum(each.forward_passes for each in answers),
        },
    }


def logprob_entries(tokens: Sequence[AnswerToken], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """``logprobs.content`` for tokens that added text; their bytes, joined, are the text."""
    names = vocabulary.token_bytes
    return [
        {
            **_token(token.data, token.logprob),
            "top_logprobs": [_token(names[top.token_id], top.logprob) for top in token.top],
        }
        for token in tokens
        if token.data
    ]


def _token(data: bytes | None, logprob: float) -> dict[str, Any]:
    """A token without bytes of its own (end of sequence, say) has an empty name."""
    return {
        "token": (data or b"").decode(errors="replace"),
        "logprob": max(logprob, LOWEST_LOGPROB),
        "bytes": None if data is None else list(data),
    }


@dataclass(slots=True)
class _Choice:
    text: list[str] = field(default_factory=list)
    tokens: list[AnswerToken] = field(default_factory=list)
    finish_reason: str | None = None


class CompletionBuilder:
    """Collects the chunks of a whole answer."""

    def __init__(self, head: AnswerHead, n: int, vocabulary: Vocabulary | None) -> None:
        """``vocabulary`` is given where log-probabilities are asked for."""
        self._head = head
        self._vocabulary = vocabulary
        self._choices = [_Choice() for _ in range(n)]

    def add(self, chunk: TextChunk) -> None:
        choice = self._choices[chunk.index]
        choice.text.append(chunk.text)
        if self._vocabulary is not None:
            choice.tokens.extend(chunk.tokens)
        choice.finish_reason = chunk.finish_reason

    def build(self, usage: dict[str, Any]) -> bytes:
        return to_json(
            {
                **self._head.fields("chat.completion"),
                "choices": [self._choice(*each) for each in enumerate(self._choices)],
                "usage": usage,
            }
        )

    def _choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        logprobs = None
        if self._vocabulary is not None:
            logprobs = {
                "content": logprob_entries(choice.tokens, self._vocabulary),
                "refusal": None,
            }
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": "".join(choice.text),
                "refusal": None,
                "annotations": [],
            },
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }


class ChunkWriter:
    """Writes the chunks of one stream as server-sent events.

    What is the same in all of them is serialised once.
    """

    def __init__(self, head: AnswerHead, vocabulary: Vocabulary | None, *, usage_key: bool) -> None:
        """``usage_key``: every chunk has ``usage``, null but in the last (or in each, on wish)."""
        self._vocabulary = vocabulary
        self._usage_key = usage_key
        opening = to_json(head.fields("chat.completion.chunk"))
        self._opening = b"data: " + opening[:-1] + b',"choices":['

    def introduction(self, index: int) -> bytes:
        """A choice's first chunk: who speaks."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return self._event(index, delta, None, None, None)

    def chunk(self, chunk: TextChunk, usage: dict[str, Any] | None = None) -> bytes:
        """The events of one ``TextChunk``: its text, and the end if it ended."""
        events = b""
        logprobs = self._logprobs(chunk)
        if chunk.text or logprobs:
            events = self._event(chunk.index, {"content": chunk.text}, logprobs, None, usage)
        if chunk.finish_reason is not None:
            events += self._event(chunk.index, {}, None, chunk.finish_reason, usage)
        return events

    def usage(self, usage: dict[str, Any]) -> bytes:
        """The chunk with no choices that ``include_usage`` asks for."""
        return self._opening + b'],"usage":' + to_json(usage) + b"}\n\n"

    def _logprobs(self, chunk: TextChunk) -> dict[str, Any] | None:
        if self._vocabulary is None:
            return None
        entries = logprob_entries(chunk.tokens, self._vocabulary)
        return {"content": entries, "refusal": None} if entries else None

    def _event(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None,
        finish_reason: str | None,
        usage: dict[str, Any] | None,
    ) -> bytes:
        choice = to_json(
            {
                "index": index,
                "delta": delta,
                "logprobs": logprobs,
                "finish_reason": finish_reason,
            }
        )
        if not self._usage_key:
            return self._opening + choice + b"]}\n\n"
        return self._opening + choice + b'],"usage":' + to_json(usage) + b"}\n\n"
