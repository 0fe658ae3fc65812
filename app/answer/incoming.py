"""Buffers for chunks of any size: text, bytes, and the arguments of calls."""

from __future__ import annotations

import codecs
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Incoming:
    """Buffer of the text that has arrived and was not taken."""

    def __init__(self, position: int) -> None:
        self.text = ""
        self.position = position
        """Where the text begins in the answer."""

    def push(self, text: str) -> None:
        self.text += text

    def take(self, count: int) -> tuple[str, int]:
        """The first characters, and where they begin in the answer."""
        taken, start = self.text[:count], self.position
        self.text = self.text[count:]
        self.position += count
        return taken, start

    def take_all(self) -> tuple[str, int]:
        return self.take(len(self.text))

    def put_back(self, text: str) -> None:
        """``text``, which was taken last, is for another reader."""
        self.text = text + self.text
        self.position -= len(text)

    def begins(self, mark: str) -> bool | None:
        """Whether the text begins with ``mark``; None while that may still come."""
        if self.text.startswith(mark):
            return True
        return None if mark.startswith(self.text) else False

    def before(self, mark: str) -> tuple[int, bool]:
        """Number of characters before ``mark``, and whether it was found.

        If not, characters at the end that may become the mark do not count.
        """
        at = self.text.find(mark)
        if at >= 0:
            return at, True
        lengths = range(min(len(mark) - 1, len(self.text)), 0, -1)
        begun = next((n for n in lengths if self.text.endswith(mark[:n])), 0)
        return len(self.text) - begun, False


@dataclass(frozen=True, slots=True)
class JsonPart:
    """A part of the JSON of arguments, and the place in the answer of the text for it.

    A value begins with a part of its own and ends with one. The places have no gaps between them.
    """

    text: str
    start: int
    end: int


class ArgumentsReader:
    """Parses one call's arguments in steps."""

    def __init__(self, step: Callable[[Any], bool]) -> None:
        """``step``: the first step. Each returns whether there may be more to do. Steps are plain
        functions: a bound method would be a reference cycle, and outlive the request.
        """
        self._incoming = Incoming(0)
        self._written = -1
        """End of the text that was given out, in the answer; -1: nothing was read."""
        self._parts: list[JsonPart] = []
        self._step = step
        self.rest: str | None = None
        """Text received after the arguments; None: they have not ended."""

    def push(self, text: str, start: int) -> list[JsonPart]:
        """What ``text``, which begins at ``start`` of the answer, adds. Not beyond their end."""
        if self._written < 0:
            self._incoming.position = self._written = start
        self._incoming.push(text)
        while self._step(self):
            pass
        parts, self._parts = self._parts, []
        return parts

    def _put(self, text: str, count: int) -> None:
        """Give out ``text``, the JSON of the next ``count`` characters."""
        self._incoming.take(count)
        self._parts.append(JsonPart(text, self._written, self._incoming.position))
        self._written = self._incoming.position

    def _put_bare(self, mark: str) -> bool:
        """Give out a string's text before ``mark``; returns whether the mark was found."""
        ready, found = self._incoming.before(mark)
        if ready:
            self._put(json_string(self._incoming.text[:ready])[1:-1], ready)
        return found


def json_string(text: str) -> str:
    """``text`` as JSON has it, with its quotes."""
    return json.dumps(text, ensure_ascii=False)


class Utf8Decoder:
    """Streaming UTF-8 decoder; invalid bytes become U+FFFD (Unicode, section 3.9)."""

    def __init__(self, *, places: bool = True) -> None:
        """``places``: whether ``bytes_before`` will be asked."""
        self._places = places
        self._undecoded = b""
        """Bytes of an incomplete character."""
        self._runs: deque[tuple[str, int]] = deque()
        """Texts after the last position asked for, each with its number of bytes."""
        self._passed = 0
        """Number of characters before ``_runs``."""
        self._passed_bytes = 0

    def decode(self, data: bytes, last: bool = False) -> str:
        """The complete characters; after the ``last`` data, incomplete ones become U+FFFD."""
        data = self._undecoded + data
        texts = []
        while True:
            try:
                text, used = codecs.utf_8_decode(data, "strict", last)
                break
            except UnicodeDecodeError as error:
                texts += [data[: error.start].decode(), "\ufffd"]
                if self._places:
                    self._runs += [(texts[-2], error.start), ("\ufffd", error.end - error.start)]
                data = data[error.end :]
        self._undecoded = data[used:]
        if self._places:
            self._runs.append((text, used))
        return "".join([*texts, text]) if texts else text

    def bytes_before(self, position: int) -> int:
        """Byte offset of the character at ``position``; positions must ascend."""
        left = position - self._passed
        while self._runs and left >= len(self._runs[0][0]):
            text, size = self._runs.popleft()
            left -= len(text)
            self._passed_bytes += size
        if left:
            text, size = self._runs[0]
            taken = len(text[:left].encode())
            self._passed_bytes += taken
            self._runs[0] = text[left:], size - taken
        self._passed = position
        return self._passed_bytes
