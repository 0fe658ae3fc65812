"""Calls that are a fixed text around a name and the JSON of arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.answer.formats.call_ids import AnyIds, CallIds
from app.answer.formats.calls import CallPiece
from app.answer.formats.incoming import Incoming
from app.answer.pieces import CallArguments, CallEnd, CallStart
from app.answer.tools import MOST_CALLS, FunctionTool, ToolUse, arguments_of
from app.core.composite import Either, FixedText, Part, Repeated, Series
from app.core.specs import Regex

_FIELD = re.compile(r"\$(name|arguments|id)")
_MARK = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")


@dataclass(frozen=True, slots=True)
class SpelledCalls:
    """A ``ToolFormat`` that is told by how a call is spelled::

    begin  CALL  separator  CALL ...  end
    """

    call: str
    """With ``$name`` for the function's name as it is, ``$arguments`` for their JSON, and ``$id``
    where the model writes an id, which nobody reads. Between each two of them is some text."""
    begin: str = ""
    separator: str = ""
    end: str = ""
    trigger: str | None = None
    parallel: bool = True
    """Whether an answer may have several calls."""
    native: bool = True
    ids: CallIds = field(default_factory=AnyIds)
    id_pattern: str = ""
    """Regular expression of ``$id``."""

    def leads(self, names: Iterable[str]) -> tuple[str, ...]:
        if self.trigger is not None:
            return (self.trigger,)
        before, _, after = self._parts()[:3]
        return tuple(self.begin + before + name + after for name in names)

    def heads(self) -> tuple[str, ...]:
        return (self.begin + self._parts()[0],)

    def calls(self, use: ToolUse) -> Part:
        calls = Repeated(
            Either(tuple(self._call(tool, use.whitespace) for tool in use.tools)),
            separator=self.separator,
            at_least=1,
            at_most=MOST_CALLS if use.parallel and self.parallel else 1,
        )
        return Series((FixedText(self.begin), calls, FixedText(self.end)))

    def reader(self, use: ToolUse, start: int) -> SpelledReader:
        return SpelledReader(self._parts(), self.begin, self.separator, start)

    def marks(self) -> Iterable[str]:
        return _MARK.findall("\n".join((self.begin, self.call, self.separator, self.end)))

    def spelled(self, calls: Iterable[Mapping[str, str]]) -> str:
        """Calls, each with its ``name`` and ``arguments``."""
        parts = list(enumerate(self._parts()))
        each = ("".join(call[part] if at % 2 else part for at, part in parts) for call in calls)
        return self.begin + self.separator.join(each) + self.end

    def _parts(self) -> list[str]:
        """Text and the names of fields in turn; text is first and last, and may be empty."""
        return _FIELD.split(self.call)

    def _call(self, tool: FunctionTool, whitespace: str) -> Part:
        fields: dict[str, Part] = {
            "name": FixedText(tool.name),
            "arguments": arguments_of(tool, whitespace),
            "id": Regex(self.id_pattern),
        }
        parts = enumerate(self._parts())
        return Series(tuple(fields[each] if at % 2 else FixedText(each) for at, each in parts))


class SpelledReader:
    """A ``CallsReader``. Arguments that come before the name wait for it."""

    def __init__(self, parts: list[str], begin: str, separator: str, start: int) -> None:
        """``parts``: text and the names of fields in turn."""
        self._parts = parts
        self._at = 0
        """The part that is next."""
        self._before = begin
        """Stands before the first part of the next call."""
        self._separator = separator
        self._incoming = Incoming(start)
        self._pieces: list[CallPiece] = []
        self._waiting: list[CallArguments] = []
        self._index = 0
        self._start = 0
        """Of the call, in the answer, as is the next."""
        self._arguments_start = 0
        self._name: str | None = None
        self._value = ValueEnd()
        self._over = False
        """After the last call: what is left is the mark at the end."""

    def push(self, text: str) -> list[CallPiece]:
        self._incoming.push(text)
        while not self._over and self._read_part():
            pass
        pieces, self._pieces = self._pieces, []
        return pieces

    def _read_part(self) -> bool:
        """Read the next part; whether it was whole."""
        part = self._parts[self._at]
        if self._at % 2 == 0:
            whole = self._read_text(part)
        elif part == "arguments":
            whole = self._read_arguments()
        else:
            whole = self._read_field(part, until=self._parts[self._at + 1])
        if whole:
            self._at = (self._at + 1) % len(self._parts)
        return whole

    def _read_text(self, text: str) -> bool:
        start = self._incoming.position
        if self._at == 0:
            self._start = start
            text = self._before + text
            if not self._incoming.text:
                return False
        begins = self._incoming.begins(text)
        if not begins:
            self._over = begins is False
            return False
        self._incoming.take(len(text))
        if self._at == len(self._parts) - 1:
            self._end_call(start)
        elif self._parts[self._at + 1] == "arguments":
            self._arguments_start = self._incoming.position
            self._start_call()
        return True

    def _read_field(self, field: str, until: str) -> bool:
        count, whole = self._incoming.before(until)
        if whole:
            text, _ = self._incoming.take(count)
            if field == "name":
                self._name = text
                if self._waiting:
                    self._start_call()
        return whole

    def _read_arguments(self) -> bool:
        end = self._value.find(self._incoming.text)
        text, start = self._incoming.take(len(self._incoming.text) if end is None else end)
        if text:
            arguments = CallArguments(self._index, text, start, start + len(text))
            (self._waiting if self._name is None else self._pieces).append(arguments)
        return end is not None

    def _start_call(self) -> None:
        """Both the name and the place of the arguments are known, or the name will be."""
        if self._name is not None:
            start = CallStart(self._index, self._name, self._start, self._arguments_start)
            self._pieces += [start, *self._waiting]
            self._waiting = []

    def _end_call(self, start: int) -> None:
        self._pieces.append(CallEnd(self._index, start, self._incoming.position))
        self._index += 1
        self._before = self._separator
        self._name = None
        self._value = ValueEnd()


class ValueEnd:
    """Finds where a JSON object or array ends, in chunks of any size."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def find(self, text: str) -> int | None:
        """The index after the value's last bracket; None if ``text`` does not hold it."""
        for index, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return index + 1
        return None
