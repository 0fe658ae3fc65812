"""An answer as it comes -> the output items of a response, and the events that tell of them.

An item at a time::

    output_item.added  [content_part.added]  delta delta ... done  [content_part.done]  item.done
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

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
from app.http.logprobs import logprob_entries

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
                if not text and not (self._waiting and isinstance(self._open, _Message)):
                    return []
                return self._text(_Message, text, self._take_logprobs())
            case Reasoning(text=text):
                return self._text(_Reasoning, text)
            case CallStart(name=name, id=id, custom=custom):
                kind = _CustomCall if custom else _Call
                space, name = self._namespaces.get(name, (None, name))
                return self._begin(kind(self._key, self._next, id, name, space))
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
            events += self._begin(_Message(self._key, 0))
        return events + self._close(status)

    @property
    def _next(self) -> int:
        """The index of an item that would begin now."""
        return len(self.items) + (self._open is not None)

    def _text(
        self,
        kind: type[_Message] | type[_Reasoning],
        text: str,
        logprobs: Sequence[dict[str, Any]] = (),
    ) -> list[Event]:
        if isinstance(self._open, kind):
            return [self._open.add(text, logprobs)]
        item = kind(self._key, self._next)
        return [*self._begin(item), item.add(text, logprobs)]

    def _begin(self, item: _Item) -> list[Event]:
        events = self._close("completed")
        self._open = item
        return events + item.begin()

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


class _Item(ABC):
    """One item while it comes."""

    stem: str
    """The beginning of the names of events that bring its text."""
    _extra: ClassVar[Event] = {}
    """Further fields of a delta."""

    def __init__(self, prefix: str, key: str, index: int) -> None:
        self._id = f"{prefix}_{key}_{index}"
        self._index = index
        self._texts: list[str] = []
        self._delta = self._event(f"{self.stem}.delta", delta="", **self._extra)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @abstractmethod
    def wire(self, status: str) -> dict[str, Any]:
        """The item as it is shown."""

    def begin(self) -> list[Event]:
        return [self._of_item("added", "in_progress")]

    def add(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> Event:
        """``logprobs``: only an item that shows them is given any."""
        self._texts.append(text)
        return {**self._delta, "delta": text}

    def end(self, status: Ended) -> list[Event]:
        return [self._done(), self._of_item("done", status)]

    @abstractmethod
    def _done(self) -> Event:
        """The event with the whole text."""

    def _of_item(self, step: str, status: str) -> Event:
        return {
            "type": f"response.output_item.{step}",
            "output_index": self._index,
            "item": self.wire(status),
        }

    def _event(self, type: str, **fields: Any) -> Event:
        return {"type": type, "item_id": self._id, "output_index": self._index, **fields}


class _TextItem(_Item):
    """An item with one part of text."""

    _extra: ClassVar[Event] = {"content_index": 0}

    @abstractmethod
    def part(self) -> dict[str, Any]: ...

    def begin(self) -> list[Event]:
        return [*super().begin(), self._of_part("added")]

    def end(self, status: Ended) -> list[Event]:
        return [self._done(), self._of_part("done"), self._of_item("done", status)]

    def _content(self, status: str) -> list[dict[str, Any]]:
        return [] if status == "in_progress" else [self.part()]

    def _done(self) -> Event:
        return self._event(f"{self.stem}.done", content_index=0, text=self.text)

    def _of_part(self, step: str) -> Event:
        return self._event(f"response.content_part.{step}", content_index=0, part=self.part())


class _Message(_TextItem):
    stem = "response.output_text"
    _extra: ClassVar[Event] = {"content_index": 0, "logprobs": []}

    def __init__(self, key: str, index: int) -> None:
        super().__init__("msg", key, index)
        self._logprobs: list[dict[str, Any]] = []

    def wire(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": self._content(status),
        }

    def part(self) -> dict[str, Any]:
        return {
            "type": "output_text",
            "text": self.text,
            "annotations": [],
            "logprobs": list(self._logprobs),
        }

    def add(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> Event:
        self._logprobs += logprobs
        return {**super().add(text), "logprobs": logprobs}

    def _done(self) -> Event:
        return {**super()._done(), "logprobs": self._logprobs}


class _Reasoning(_TextItem):
    stem = "response.reasoning_text"

    def __init__(self, key: str, index: int) -> None:
        super().__init__("rs", key, index)

    def wire(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "reasoning",
            "status": status,
            "summary": [],
            "content": self._content(status),
            "encrypted_content": None,
        }

    def part(self) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": self.text}


class _Call(_Item):
    stem = "response.function_call_arguments"
    _prefix = "fc"

    _type = "function_call"
    _text_name = "arguments"

    def __init__(
        self, key: str, index: int, call_id: str, name: str, namespace: str | None
    ) -> None:
        super().__init__(self._prefix, key, index)
        self._call_id = call_id
        self._name = name
        self._namespace = {} if namespace is None else {"namespace": namespace}

    def wire(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": self._type,
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            **self._namespace,
            self._text_name: self.text,
        }

    def _done(self) -> Event:
        # Older versions of the SDK need the name.
        return self._event(f"{self.stem}.done", name=self._name, arguments=self.text)


class _CustomCall(_Call):
    stem = "response.custom_tool_call_input"
    _prefix = "ctc"
    _type = "custom_tool_call"
    _text_name = "input"

    def _done(self) -> Event:
        return self._event(f"{self.stem}.done", input=self.text)


def _entries(tokens: Iterable[AnswerToken], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Log-probabilities in this API's form: a token without bytes of its own has none."""
    entries = logprob_entries(list(tokens), vocabulary)
    for entry in entries:
        for token in (entry, *entry["top_logprobs"]):
            token["bytes"] = token["bytes"] or []
    return entries
