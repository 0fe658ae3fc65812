"""Arguments of calls as they are read: parts of their JSON, with their places in the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.answer.incoming import begun_at_end


@dataclass(frozen=True, slots=True)
class JsonPart:
    """A part of the JSON of arguments, and the place in the answer of what says so.

    A value begins with a part of its own and ends with one. The places have no gaps between them.
    """

    text: str
    start: int
    end: int


class ArgumentsReader(Protocol):
    """Reads one call's arguments."""

    def push(self, text: str, start: int) -> list[JsonPart]:
        """What ``text``, which begins at ``start`` of the answer, adds. Not beyond their end."""

    @property
    def rest(self) -> str | None:
        """What was read of the text behind the arguments; None: they have not ended."""


class BufferedReader:
    """An ``ArgumentsReader`` that reads in steps from what has come and was not understood yet."""

    def __init__(self, step: Callable[[], bool]) -> None:
        """``step``: the first. Each says whether there may be more to do."""
        self._buffer = ""
        self._position = 0
        """Where the buffer begins in the answer."""
        self._told = -1
        """Up to where the text was told."""
        self._parts: list[JsonPart] = []
        self._step = step
        self.rest: str | None = None

    def push(self, text: str, start: int) -> list[JsonPart]:
        """See ``ArgumentsReader``."""
        if self._told < 0:
            self._position = self._told = start
        self._buffer += text
        while self._step():
            pass
        parts, self._parts = self._parts, []
        return parts

    def _put(self, text: str, count: int) -> None:
        """``text`` is what the buffer's first characters say."""
        self._take(count)
        self._parts.append(JsonPart(text, self._told, self._position))
        self._told = self._position

    def _take(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._position += count

    def _put_bare(self, mark: str) -> bool:
        """Tell what of a string stands before ``mark``, as it is; whether ``mark`` is there."""
        at = self._buffer.find(mark)
        ready = at if at >= 0 else len(self._buffer) - begun_at_end(self._buffer, mark)
        if ready:
            self._put(json_string(self._buffer[:ready])[1:-1], ready)
        return at >= 0


def json_string(text: str) -> str:
    """``text`` as JSON has it, with its quotes."""
    return json.dumps(text, ensure_ascii=False)
