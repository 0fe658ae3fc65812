"""Answers as they are on the wire: whole completions and the chunks of a stream, as JSON bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from app.answer.reader import CallArguments, CallEnd, CallStart, Content, Piece, Reasoning
from app.core.constraint import Vocabulary
from app.core.events import AnswerToken, TextChunk
from app.http.choices import CallIds, ChoiceReaders, Reading
from app.http.logprobs import logprob_entries


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


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)

    def wire(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class _Choice:
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    tokens: list[AnswerToken] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, piece: Piece, ids: CallIds) -> None:
        match piece:
            case Content(text=text):
                self.content.append(text)
            case Reasoning(text=text):
                self.reasoning.append(text)
            case CallStart(name=name):
                self.calls.append(_Call(ids.new(), name))
            case CallArguments(text=text):
                self.calls[-1].arguments.append(text)

    def message(self) -> dict[str, Any]:
        content = "".join(self.content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if self.calls and not content else content,
            "refusal": None,
            "annotations": [],
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = [call.wire() for call in self.calls]
        return message


class CompletionBuilder:
    """Collects the chunks of a whole answer."""

    def __init__(
        self, head: AnswerHead, readers: ChoiceReaders, vocabulary: Vocabulary | None
    ) -> None:
        """``vocabulary`` is given where log-probabilities are asked for."""
        self._head = head
        self._readers = readers
        self._vocabulary = vocabulary
        self._choices = [_Choice() for _ in range(len(readers))]

    def add(self, chunk: TextChunk) -> None:
        reading = self._readers.read(chunk)
        choice = self._choices[chunk.index]
        for piece in reading.pieces:
            choice.add(piece, self._readers.call_ids)
        if self._vocabulary is not None:
            choice.tokens.extend(reading.tokens)
        choice.finish_reason = reading.finish_reason

    def build(self, usage: dict[str, Any]) -> bytes:
        """The completion. Many log-probabilities take a second: those are no work for the loop."""
        head = to_json(self._head.fields("chat.completion"))
        # One choice after the other, so that no call keeps other threads waiting for long.
        choices = b",".join(to_json(self._choice(*each)) for each in enumerate(self._choices))
        return head[:-1] + b',"choices":[' + choices + b'],"usage":' + to_json(usage) + b"}"

    def _choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        logprobs = None
        if self._vocabulary is not None:
            logprobs = {
                "content": logprob_entries(choice.tokens, self._vocabulary),
                "refusal": None,
            }
        return {
            "index": index,
            "message": choice.message(),
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }


class ChunkWriter:
    """Writes the chunks of one stream as server-sent events.

    What is the same in all of them is serialised once.
    """

    def __init__(
        self,
        head: AnswerHead,
        readers: ChoiceReaders,
        vocabulary: Vocabulary | None,
        *,
        usage_key: bool,
    ) -> None:
        """``usage_key``: every chunk has ``usage``, null but in the last (or in each, on wish)."""
        self._readers = readers
        self._vocabulary = vocabulary
        self._usage_key = usage_key
        opening = to_json(head.fields("chat.completion.chunk"))
        self._opening = b"data: " + opening[:-1] + b',"choices":['

    def introduction(self, index: int) -> bytes:
        """A choice's first chunk: who speaks."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return self._event(index, delta, None, None, None)

    def chunk(self, chunk: TextChunk, usage: dict[str, Any] | None = None) -> bytes:
        """The events of one ``TextChunk``: its text and calls, and the end if it ended."""
        reading = self._readers.read(chunk)
        index = chunk.index
        logprobs = self._logprobs(reading)
        events = []
        for delta in self._deltas(reading):
            # Tokens and text need not come in step: what is known goes with the first content.
            own = logprobs if "content" in delta else None
            logprobs = None if own else logprobs
            events.append(self._event(index, delta, own, None, usage))
        if logprobs:
            events.append(self._event(index, {"content": ""}, logprobs, None, usage))
        if reading.finish_reason is not None:
            events.append(self._event(index, {}, None, reading.finish_reason, usage))
        return b"".join(events)

    def usage(self, usage: dict[str, Any]) -> bytes:
        """The chunk with no choices that ``include_usage`` asks for."""
        return self._opening + b'],"usage":' + to_json(usage) + b"}\n\n"

    def _deltas(self, reading: Reading) -> list[dict[str, Any]]:
        return [
            _delta(piece, self._readers.call_ids)
            for piece in reading.pieces
            if not isinstance(piece, CallEnd)
        ]

    def _logprobs(self, reading: Reading) -> dict[str, Any] | None:
        if self._vocabulary is None:
            return None
        entries = logprob_entries(reading.tokens, self._vocabulary)
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


def _delta(piece: Piece, ids: CallIds) -> dict[str, Any]:
    """``id`` and ``name`` come once, with a call's first delta."""
    match piece:
        case Content(text=text):
            return {"content": text}
        case Reasoning(text=text):
            return {"reasoning_content": text}
        case CallStart(index=index, name=name):
            function = {"name": name, "arguments": ""}
            call = {"index": index, "id": ids.new(), "type": "function", "function": function}
            return {"tool_calls": [call]}
        case CallArguments(index=index, text=text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
    raise AssertionError(f"a piece that has no delta: {piece}")
