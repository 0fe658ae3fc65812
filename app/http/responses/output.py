"""An answer as it comes -> the output items of a response, and the events that tell of them.

An item at a time::

    output_item.added  [content_part.added]  delta delta ... done  [content_part.done]  item.done
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.answer.pieces import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    FieldValue,
    Reasoning,
    TextPiece,
)
from app.core.constraint import Vocabulary
from app.core.events import AnswerToken
from app.http.reports import logprob_entries

Event = dict[str, Any]
"""An event without its ``sequence_number``."""

WHOLE = "fields"
"""The field of an event that has values which are whole; they are written by themselves."""

Ended = Literal["completed", "incomplete"]

Namespaces = dict[str, tuple[str, str]]
"""Of tools that have one: by what the model calls them, namespace and name."""


class OutputBuilder:
    """The output of one response. The texts of its events, joined, are those of its items."""

    def __init__(
        self, key: str, vocabulary: Vocabulary | None, namespaces: Namespaces | None = None
    ) -> None:
        """``key`` is part of the items' ids. ``vocabulary``: log-probabilities are asked for."""
        self._namespaces = namespaces or {}
        self.items: list[dict[str, Any]] = []
        """The items that ended, as the response shows them."""
        self._key = key
        self._vocabulary = vocabulary
        self._open: _Item | None = None
        self._waiting: list[dict[str, Any]] = []
        """Log-probabilities of text that is held back still."""

    def add(self, piece: TextPiece) -> list[Event]:
        """The events of a piece."""
        match piece:
            case Content(text=text, tokens=tokens):
                if self._vocabulary is not None:
                    self._waiting += _entries(tokens, self._vocabulary)
                if not text and not (self._waiting and self._kind is _MESSAGE):
                    return []
                return self._text(_MESSAGE, text, self._take_logprobs())
            case Reasoning(text=text):
                return self._text(_REASONING, text)
            case CallStart(name=name, id=id, custom=custom):
                space, inner = self._namespaces.get(name, ("", name))
                named = {"namespace": space, "name": inner} if space else {"name": name}
                return self._begin(_CUSTOM if custom else _CALL, call_id=id, **named)
            case CallArguments(text=text):
                assert self._open is not None
                return [] if piece.custom and not text else [self._open.add(text)]
            case CallEnd():
                return self._close("completed")

    def whole(self, values: Sequence[FieldValue]) -> Event:
        """Values that are whole with the event before: a delta of nothing else."""
        assert self._open is not None
        return {**self._open.add(""), WHOLE: values}

    def end(self, status: Ended) -> list[Event]:
        """The answer is over. One that says nothing at all has a message that is empty."""
        events = []
        if self._open is None and not self.items and status == "completed":
            events += self._begin(_MESSAGE)
        return events + self._close(status)

    @property
    def _kind(self) -> _Kind | None:
        """That of the open item."""
        return None if self._open is None else self._open.kind

    def _text(self, kind: _Kind, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> list[Event]:
        events = [] if self._kind is kind else self._begin(kind)
        assert self._open is not None
        return [*events, self._open.add(text, logprobs)]

    def _begin(self, kind: _Kind, **fields: str) -> list[Event]:
        events = self._close("completed")
        self._open = _Item(kind, self._key, len(self.items), fields)
        return events + self._open.begin()

    def _close(self, status: Ended) -> list[Event]:
        if self._open is None:
            return []
        events = self._open.end(status)
        self.items.append(self._open.wire(status))
        self._open = None
        return events

    def _take_logprobs(self) -> list[dict[str, Any]]:
        logprobs, self._waiting = self._waiting, []
        return logprobs


@dataclass(frozen=True, slots=True)
class _Kind:
    """What all items of a type have."""

    type: str
    prefix: str
    """Of their ids."""
    stem: str
    """The beginning of the names of events that bring their text."""
    text: str
    """The type of the part that has the text, or the item's own field that has it."""
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
    """One item while it comes."""

    def __init__(self, kind: _Kind, key: str, index: int, fields: Mapping[str, Any]) -> None:
        self.kind = kind
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
        """``logprobs``: only a message is given any."""
        self._texts.append(text)
        if not self._logs:
            return {**self._delta, "delta": text}
        self._logprobs += logprobs
        return {**self._delta, "delta": text, "logprobs": logprobs}

    def end(self, status: Ended) -> list[Event]:
        told: dict[str, Any] = {"text" if self.kind.in_part else self.kind.text: self.text}
        if self._logs:
            told["logprobs"] = self._logprobs
        if self.kind is _CALL:  # older versions of the SDK need the name
            told["name"] = self._fields["name"]
        done = self._event("done", **told)
        return [done, *self._of_part("done"), self._of_item("done", status)]

    @property
    def _logs(self) -> bool:
        return self.kind is _MESSAGE

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
        event = self._event("", part=self._part())
        return [{**event, "type": f"response.content_part.{step}"}]

    def _event(self, step: str, **fields: Any) -> Event:
        place = {"content_index": 0} if self.kind.in_part else {}
        type = f"{self.kind.stem}.{step}"
        return {
            "type": type, "item_id": self._id, "output_index": self._index, **place, **fields
        }  # fmt: skip


def _entries(tokens: Iterable[AnswerToken], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Log-probabilities in this API's form: a token without bytes of its own has none."""
    entries = logprob_entries(list(tokens), vocabulary)
    for entry in entries:
        for token in (entry, *entry["top_logprobs"]):
            token["bytes"] = token["bytes"] or []
    return entries
