"""Calls that are a fixed text around a name and its arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.answer.arguments import JsonReader, LiteralReader, ParameterReader
from app.answer.formats.calls import CallIds, CallPiece
from app.answer.formats.reasoning import marks_in
from app.answer.incoming import ArgumentsReader, Incoming
from app.answer.pieces import CallArguments, CallEnd, CallStart
from app.answer.tools import FunctionTool, ToolUse, arguments_of
from app.core.arguments import Arguments, Parameters, Readings
from app.core.composite import Either, FixedText, Part, Repeated, Series
from app.core.literals import Literals
from app.core.specs import Regex

_FIELD = re.compile(r"\$(name|arguments|id)")
_FIRST_OF_ARGUMENTS = "<"
"""First character of the arguments in notations that need no text between name and arguments."""
_DEEPSEEK_MARK = re.compile(r"｜[^｜<>\s]+｜(?!>)")
"""DeepSeek's special tokens."""


@dataclass(frozen=True, slots=True)
class SpelledCalls:
    """A ``ToolFormat`` that is defined by how a call is spelled::

    begin  CALL  separator  CALL ...  end

    Marks of a list are ``begin`` and ``end``, marks of each call are part of ``call``.
    """

    name: str
    call: str
    """Template of a call: ``$name``, ``$arguments``, and ``$id`` if the model writes an id, which
    is ignored. There must be text between two of them, except between a name and arguments in a
    notation whose texts all begin with ``<``."""
    notation: Parameters | Literals | None = None
    """Notation of the arguments; None: JSON."""
    begin: str = ""
    separator: str = ""
    end: str = ""
    trigger: str | None = None
    """Text that begins calls and nothing else (``<tool_call>``), so calls may follow text. None: an
    answer is either text or calls."""
    parallel: bool = True
    """Whether an answer may have several calls."""
    native: bool = True
    """Whether the chat template shows tools and calls."""
    ids: CallIds = field(default_factory=CallIds)
    id_pattern: str = ""
    """Regular expression of ``$id``."""
    other_tail: str = ""
    """Alternative to the text after ``$arguments``."""
    also: tuple[SpelledCalls, ...] = ()

    @property
    def in_json(self) -> bool:
        return self.notation is None

    def leads(self, names: Iterable[str]) -> tuple[str, ...]:
        if self.trigger is not None:
            return (self.trigger,)
        before, _, after = self._parts()[:3]
        return tuple(self.begin + before + name + after for name in names)

    def heads(self) -> tuple[str, ...]:
        return (self.begin + self._parts()[0],)

    def calls(self, use: ToolUse) -> Part:
        calls = Repeated(
            Either(tuple(self._call(tool, use) for tool in use.tools)),
            separator=self.separator,
            at_least=1,
            at_most=use.most_calls if self.parallel else 1,
        )
        end: Part = FixedText(self.end)
        if not self.end and self.separator.isspace():
            # a separator does not oblige the model to make another call
            end = Repeated(FixedText(self.separator), at_most=1)
        return Series((FixedText(self.begin), calls, end))

    def reader(self, use: ToolUse, start: int) -> SpelledReader:
        return SpelledReader(
            self._ways(), self.begin, self.separator, start, self._reader_of_arguments(use)
        )

    def _reader_of_arguments(self, use: ToolUse) -> Callable[[str], ArgumentsReader] | None:
        """Makes the reader for the arguments of a function, by name; None if they are JSON."""
        notation = self.notation
        if notation is None:
            return None
        if isinstance(notation, Literals):
            return lambda _: LiteralReader(notation)
        schemas = {tool.name: arguments_of(tool, use).schema for tool in use.tools}
        return lambda name: ParameterReader(notation, Readings(schemas.get(name, True)))

    def marks(self) -> Iterable[str]:
        texts = [self.begin, self.call, self.separator, self.end]
        if isinstance(self.notation, Literals):
            texts.append(self.notation.quote)
        elif self.notation is not None:
            texts += [self.notation.before, *self.notation.betweens(), self.notation.after]
        return [*marks_in(*texts), *_DEEPSEEK_MARK.findall("\n".join(texts))]

    def spelled(self, calls: Iterable[Mapping[str, str]]) -> str:
        """Calls, each with its ``name`` and ``arguments``."""
        parts = list(enumerate(self._parts()))
        numbered = ({"id": str(number), **call} for number, call in enumerate(calls))
        each = ("".join(call[part] if at % 2 else part for at, part in parts) for call in numbered)
        return self.begin + self.separator.join(each) + self.end

    def written(self, arguments: dict[str, Any] | str) -> str:
        """``arguments`` in the notation of calls: JSON or literals; a string stays as it is."""
        if isinstance(arguments, str):
            return arguments
        if isinstance(self.notation, Literals):
            return self.notation.arguments(arguments)
        return json.dumps(arguments, ensure_ascii=False)

    def _parts(self) -> list[str]:
        """The template split into text and field names in turn; text is first and last."""
        return _FIELD.split(self.call)

    def _ways(self) -> list[list[str]]:
        """The parts of a call, for each of its one or two spellings."""
        parts = self._parts()
        if not self.other_tail:
            return [parts]
        head = parts[: parts.index("arguments") + 1]
        return [parts, head + _FIELD.split(self.other_tail)]

    def _call(self, tool: FunctionTool, use: ToolUse) -> Part:
        schema, notation = arguments_of(tool, use), self.notation
        fields: dict[str, Part] = {
            "name": FixedText(tool.name),
            "arguments": Arguments(schema, notation, schema.schema) if notation else schema,
            "id": Regex(self.id_pattern),
        }
        ways = [
            [fields[each] if at % 2 else FixedText(each) for at, each in enumerate(way)]
            for way in self._ways()
        ]
        tail = ways[0].index(fields["arguments"]) + 1
        tails = tuple(Series(tuple(way[tail:])) for way in ways)
        return Series((*ways[0][:tail], Either(tails)))


class SpelledReader:
    """A ``CallsReader``. Arguments that come before the name wait for it."""

    def __init__(
        self,
        ways: list[list[str]],
        begin: str,
        separator: str,
        start: int,
        arguments: Callable[[str], ArgumentsReader] | None = None,
    ) -> None:
        """``ways``: spellings of a call, as text and field names in turn. They only differ after
        the arguments.

        ``arguments`` makes the reader of a function's arguments; None: they are JSON.
        """
        self._ways = ways
        self._parts = ways[0]
        self._at = 0
        """Index of the next part."""
        self._before = begin
        """Text before the first part of the next call."""
        self._separator = separator
        self._incoming = Incoming(start)
        self._pieces: list[CallPiece] = []
        self._waiting: list[CallArguments] = []
        self._index = 0
        self._start = 0
        """Offset of the call in the answer, like the next two."""
        self._arguments_start = self._arguments_end = 0
        self._name: str | None = None
        self._reader_of = arguments
        self._arguments: ArgumentsReader = JsonReader()
        self._over = False
        """Whether the last call has ended; only the end mark is left."""

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
            whole = self._read_field(part, until=self._parts[self._at + 1] or _FIRST_OF_ARGUMENTS)
        if whole:
            self._at += 1
        return whole

    def _read_text(self, text: str) -> bool:
        if self._at == 0:
            self._start = self._incoming.position
            text = self._before + text
            if not self._incoming.text:
                return False
        elif self._parts[self._at - 1] == "arguments" and self._incoming.begins(text) is False:
            self._parts = self._ways[-1]
            text = self._parts[self._at]
        begins = self._incoming.begins(text)
        if not begins:
            self._over = begins is False
            return False
        self._incoming.take(len(text))
        if self._at == len(self._parts) - 1:
            self._pieces.append(CallEnd(self._index, self._arguments_end, self._incoming.position))
            self._at = -1
            self._index += 1
            self._before = self._separator
            self._name = None
            self._arguments = JsonReader()
            self._parts = self._ways[0]
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
        pieces = self._waiting if self._name is None else self._pieces
        for part in self._arguments.push(*self._incoming.take_all()):
            pieces.append(CallArguments(self._index, part.text, part.start, part.end))
            self._arguments_end = part.end
        rest = self._arguments.rest
        if rest is None:
            return False
        self._incoming.put_back(rest)
        return True

    def _start_call(self) -> None:
        """Emit the call's start, once its name and the place of its arguments are known."""
        if self._name is not None:
            start = CallStart(
                self._index,
                self._name,
                self._start,
                self._arguments_start,
                in_json=self._reader_of is None,
            )
            if self._reader_of is not None:
                self._arguments = self._reader_of(self._name)
            self._pieces += [start, *self._waiting]
            self._waiting = []
